// What a hostile page tries against an address: reads with everything that a browser has, and writes in every type that
// needs no leave. Comes to the list of what was read, and how many tries there were.

async function attack({ base, reads, writes, types, socket }) {
  const read = [];
  let tries = 0;
  const note = (how, what) => read.push(`${how}: ${String(what).slice(0, 200)}`);
  const attempt = async (how, action) => {
    tries += 1;
    try {
      const found = await action();
      if (found) note(how, found);
    } catch {
      // A refusal, by the browser or by the other end.
    }
  };
  const within = () => AbortSignal.timeout(2_000);
  const event = (target, good, bad) =>
    new Promise((resolve) => {
      good.forEach((name) => target.addEventListener(name, (it) => resolve(it.data ?? name)));
      bad.forEach((name) => target.addEventListener(name, () => resolve(null)));
    });
  const answered = async (response) => (response.ok ? `${response.status} ${await response.text()}` : null);
  const element = (tag, address, good) => {
    const it = document.createElement(tag);
    const done = event(it, good, ["error"]);
    it[tag === "link" ? "href" : "src"] = address;
    if (tag === "link") it.rel = "stylesheet";
    document.documentElement.append(it);
    return done.finally(() => it.remove());
  };

  for (const path of reads) {
    const address = base + path;
    for (const mode of ["cors", "same-origin", "no-cors"]) {
      for (const credentials of ["omit", "include"]) {
        await attempt(`fetch ${mode} ${path}`, async () => answered(await fetch(address, { mode, credentials, cache: "no-store", signal: within() })));
      }
    }
    await attempt(`image ${path}`, () => element("img", address, ["load"]));
    await attempt(`style ${path}`, async () => {
      await element("link", address, ["load"]);
      return [...document.styleSheets].some((it) => it.href === address && it.cssRules.length > 0) && "rules";
    });
    await attempt(`frame ${path}`, async () => {
      const frame = document.createElement("iframe");
      const done = event(frame, ["load"], ["error"]);
      frame.src = address;
      document.documentElement.append(frame);
      await done;
      const text = frame.contentDocument?.body?.innerText ?? "";
      frame.remove();
      // Of its own origin, the page of a refusal can be read, and says nothing but that.
      return text && !text.includes('"code":') && text;
    });
    await attempt(`EventSource ${path}`, async () => {
      const source = new EventSource(address);
      const found = await event(source, ["open", "message"], ["error"]);
      source.close();
      return found;
    });
  }
  await attempt("WebSocket", async () => {
    const opened = new WebSocket(socket);
    const found = await event(opened, ["open", "message"], ["error", "close"]);
    opened.close();
    return found;
  });

  for (const [path, body] of writes) {
    const address = base + path;
    for (const type of types) {
      for (const mode of ["no-cors", "cors"]) {
        const content = new Blob([body], type ? { type } : {});
        await attempt(`post ${mode} ${type} ${path}`, async () => answered(await fetch(address, { method: "POST", mode, body: content, signal: within() })));
      }
    }
    for (const method of ["PUT", "DELETE", "PATCH"]) {
      await attempt(`${method} ${path}`, async () => answered(await fetch(address, { method, body, signal: within() })));
    }
    await attempt(`post without a body ${path}`, async () => answered(await fetch(address, { method: "POST", mode: "no-cors", signal: within() })));
    await attempt(`beacon ${path}`, () => void navigator.sendBeacon(address, new Blob([body], { type: "text/plain" })));
    for (const enctype of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]) {
      await attempt(`form ${enctype} ${path}`, async () => {
        const frame = document.createElement("iframe");
        frame.name = `f${tries}`;
        document.documentElement.append(frame);
        const form = document.createElement("form");
        Object.assign(form, { method: "POST", action: address, enctype, target: frame.name });
        // As text it is the JSON, with an equals sign that a string takes up.
        const input = document.createElement("input");
        const [name, value] = [`${body.slice(0, -1)},"x":"`, '"}'];
        Object.assign(input, { name, value });
        form.append(input);
        document.documentElement.append(form);
        const done = event(frame, ["load"], ["error"]);
        form.submit();
        await done;
        frame.remove();
        form.remove();
        return null;
      });
    }
  }
  return { read, tries };
}
