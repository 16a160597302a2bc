// Taking a resource away from one holder: asks for the reason, which the holder, its host's log and the audit trail have.

import { post } from "./api.js";
import { byId, make, setText } from "./dom.js";
import { visible } from "./format.js";

/** The next revocation: a resource, and the token of the holder that was seen. */
let wish = null;
let whenDone = () => {};

/** Listens to the dialog; `done` is called after each attempt. */
export function listenToRevocations(done) {
  whenDone = done;
  byId("revoke-cancel").addEventListener("click", () => byId("revoke").close());
  byId("revoke-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const asked = wish;
    const reason = byId("revoke-reason").value.trim();
    if (!asked || reason === "") return say("Give a reason: whoever loses it is told.");
    byId("revoke-submit").disabled = true;
    try {
      const { revoked } = await post("/v1/revoke", { ...asked, reason, for_ms: Number(byId("revoke-for").value) });
      if (revoked === 0) return say("That holder has it no more: nothing was taken away.");
      byId("revoke").close();
    } catch (error) {
      return say(`Not known to be taken away: ${error.message}`);
    } finally {
      byId("revoke-submit").disabled = false;
      whenDone();
    }
  });
}

function say(text) {
  setText(byId("revoke-error"), visible(text));
}

/** The button for a holder of a resource. */
export function revokeButton({ tenant, kind, name }, holder, who) {
  const button = make("button", { type: "button", class: "plain" }, "Take away…");
  button.setAttribute("aria-label", `Take away… from ${who}`);
  button.addEventListener("click", () => {
    // A holder without Tenure has no token: then all holders of the resource lose it.
    wish = { tenant, kind, name, ...(holder.token > 0 ? { token: holder.token } : {}) };
    const others = wish.token === undefined && kind === "semaphore" ? " and all its other holders, since this one has no token" : "";
    byId("revoke-what").replaceChildren(`${kind} `, make("bdi", {}, visible(name)), " from ", make("bdi", {}, who), others);
    byId("revoke-reason").value = "";
    byId("revoke-for").value = "0";
    say("");
    byId("revoke").showModal();
    byId("revoke-reason").focus();
  });
  return button;
}
