// Keys that are shorter than the way there by Tab.

import { byId } from "./dom.js";

/** Remembers that somebody wants no keys of a single character: those who dictate, or type with a switch. */
const OFF = "tenure-single-keys-off";

function isTyping(target) {
  return target instanceof HTMLElement && target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;
}

function rows() {
  return [...byId("rows").querySelectorAll(".open")];
}

/** Moves the focus by so many rows, from the row that has it, else from the open one. */
function step(by) {
  const all = rows();
  const focused = all.findIndex((row) => row.closest("tr").contains(document.activeElement));
  const now = focused < 0 ? all.findIndex((row) => row.closest("tr").hasAttribute("aria-current")) : focused;
  const next = now < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(all.length - 1, Math.max(0, now + by));
  all[next]?.focus();
  all[next]?.scrollIntoView({ block: "nearest" });
}

/** `close` closes the open row and tells whether there was one; `turn` goes on by so many pages; `view` to the nth view. */
export function listen({ close, turn, view }) {
  const dialog = byId("keys");
  const single = byId("single-keys");
  single.checked = localStorage.getItem(OFF) === null;
  single.addEventListener("change", () => (single.checked ? localStorage.removeItem(OFF) : localStorage.setItem(OFF, "1")));
  byId("help").addEventListener("click", () => dialog.showModal());

  const search = byId("search");
  const actions = {
    "/": () => search.select(),
    j: () => step(1),
    k: () => step(-1),
    n: () => turn(1),
    p: () => turn(-1),
    "?": () => dialog.showModal(),
  };
  // The tenth view is at 0, behind 9.
  for (let n = 1; n <= 10; n += 1) actions[n % 10] = () => view(n - 1);

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || document.querySelector("dialog[open]")) return;
    const isInList = event.target === document.body || event.target === byId("detail") || byId("list").contains(event.target);
    if (event.key === "Escape") {
      if (event.target === search && search.value !== "") return;
      if (close()) event.preventDefault();
      else if (event.target === search) rows()[0]?.focus();
    } else if ((event.key === "ArrowDown" || event.key === "ArrowUp") && isInList && !(event.target === search && event.key === "ArrowUp")) {
      event.preventDefault();
      step(event.key === "ArrowDown" ? 1 : -1);
    } else if (event.key.length === 1 && !isTyping(event.target) && single.checked && Object.hasOwn(actions, event.key)) {
      event.preventDefault();
      actions[event.key]();
    }
  });
}
