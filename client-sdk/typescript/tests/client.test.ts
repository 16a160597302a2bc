import assert from "node:assert/strict";
import { test } from "node:test";

import { ResponseParser } from "../dist/client/response.js";
import { findSocket, parseSocket, places, type Surroundings } from "../dist/client/socket.js";
import { FRAME_SIZE_MAX, SseParser } from "../dist/client/sse.js";
import { milliseconds } from "../dist/duration.js";
import { Cell } from "../dist/hold/cell.js";
import { type Acquired, parse, parseEvent, stringify } from "../dist/wire.js";

/** Cuts the text into pieces of each of these sizes. */
function inChunks(text: string, take: (chunks: Buffer[]) => void): void {
  const bytes = Buffer.from(text);
  for (const size of [1, 2, 7, Math.max(1, bytes.length)]) {
    const chunks = [];
    for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
    take(chunks);
  }
}

test("frames", () => {
  const check = (stream: string, expected: string[]): void =>
    inChunks(stream, (chunks) => {
      const parser = new SseParser();
      const frames = chunks.flatMap((chunk) => parser.feed(chunk));
      assert.deepEqual(frames.map(({ id, event, data }) => `${id ?? "-"} ${event} ${data}`), expected);
    });
  check("", []);
  check("id: 7\nevent: granted\ndata: {}\n\n", ["7 granted {}"]);
  check("id: 7\r\nevent: granted\r\ndata: {}\r\n\r\n", ["7 granted {}"]);
  check("event: a\ndata: 1\n\nevent: b\ndata: 2\n\n", ["- a 1", "- b 2"]);
  check("data:1\ndata: 2\ndata\n\n", ["-  1\n2\n"]);
  check(": keep-alive\n\ndata: {}\n: in between\n\n", ["-  {}"]);
  check("id: 9\nevent: unfinished\ndata: {}\n", []);
  check("event: without data\n\ndata: x\n\n", ["-  x"]);
  check("id: none\nretry: 10\nfuture: y\ndata: x\n\n", ["-  x"]);
  check("id: 1\ndata: grüße\n\n", ["1  grüße"]);
});

test("an endless event is refused", () => {
  const half = Buffer.alloc(FRAME_SIZE_MAX / 2, "x");
  const line = new SseParser();
  assert.throws(() => [half, half, half].forEach((chunk) => line.feed(chunk)), /larger than/);
  const data = new SseParser();
  const chunk = Buffer.concat([Buffer.from("data: "), half, Buffer.from("\n")]);
  assert.throws(() => [chunk, chunk, chunk].forEach((chunk) => data.feed(chunk)), /larger than/);
});

test("answers", () => {
  const check = (text: string, body: string, reusable: boolean): void =>
    inChunks(text, (chunks) => {
      const parser = new ResponseParser();
      const parts = chunks.flatMap((chunk) => parser.feed(chunk));
      if (!parser.done) parser.end();
      assert.equal(Buffer.concat(parts).toString(), body);
      assert.equal(parser.done, true);
      assert.equal(parser.reusable, reusable);
    });
  check("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", "hello", true);
  check("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "", true);
  check("HTTP/1.1 204 No Content\r\n\r\n", "", true);
  check("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", true);
  check("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", "ok", false);
  check("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n", "hello!", true);
  check("HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", false);
});

test("an answer that is cut off is not complete", () => {
  for (const text of ["HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n"]) {
    const parser = new ResponseParser();
    parser.feed(Buffer.from(text));
    parser.end();
    assert.equal(parser.done, false);
  }
});

test("what is no HTTP is refused", () => {
  for (const text of ["SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n"]) {
    assert.throws(() => new ResponseParser().feed(Buffer.from(text)));
  }
  assert.throws(() => new ResponseParser().feed(Buffer.alloc(1 << 17, "x")), /does not end/);
});

test("the nearest socket wins", () => {
  const own = "/run/user/1000/tenured/api.sock";
  const service = "/run/tenured/api.sock";
  const check = (explicit: string | undefined, variables: Record<string, string>, existing: string[], expected: string): void => {
    const around: Surroundings = { variable: (name) => variables[name], usable: (path) => existing.includes(path), uid: () => 1000 };
    assert.equal(findSocket(explicit, around).path, expected);
  };
  const xdg = { XDG_RUNTIME_DIR: "/run/user/1000" };
  const named = { TENURE_SOCKET: "/a.sock", ...xdg };
  check("/b.sock", named, [own], "/b.sock");
  check(undefined, named, [own], "/a.sock");
  check(undefined, { TENURE_SOCKET: "", ...xdg }, [own, service], own);
  check(undefined, xdg, [service], service);
  check(undefined, xdg, [], own);
  check(undefined, {}, [], service);
  check(undefined, {}, ["/tmp/tenured-1000/api.sock"], "/tmp/tenured-1000/api.sock");
  // A cron job is not told, and su(1) tells of another user's.
  check(undefined, {}, [own, service], own);
  check(undefined, { XDG_RUNTIME_DIR: "/run/user/0" }, [own, service], own);
  // The service of root comes before what a session left.
  assert.deepEqual(places(undefined, 0), [service, "/run/user/0/tenured/api.sock"]);
  assert.deepEqual(places(undefined, 7), ["/run/user/7/tenured/api.sock", "/tmp/tenured-7/api.sock", service]);
});

test("a URI is a path with a scheme", () => {
  assert.equal(parseSocket("unix:/a.sock"), "/a.sock");
  assert.equal(parseSocket("unix:///a.sock"), "/a.sock");
  assert.throws(() => parseSocket("unix://host/a.sock"), /has no host/);
  assert.throws(() => parseSocket("http://host/"), /only scheme/);
  assert.throws(() => parseSocket("unix:"), /must not be empty/);
});

test("durations", () => {
  assert.equal(milliseconds(5, "wait"), 5);
  assert.equal(milliseconds("500ms", "wait"), 500);
  assert.equal(milliseconds("5s", "wait"), 5000);
  assert.equal(milliseconds("1h 30m", "wait"), 5_400_000);
  assert.equal(milliseconds("1.5s", "wait"), 1500);
  for (const bad of ["", "5", "5 parsecs", "-1s", -1, Number.NaN, Number.POSITIVE_INFINITY]) {
    assert.throws(() => milliseconds(bad, "wait"), /wait is .*: give a number of ms, or text/, String(bad));
  }
});

test("a token is exact, whatever its size", () => {
  const largest = 2n ** 64n - 1n;
  const text = `{"token":${largest},"valid_until_boottime_ns":9007199254740993,"name":"\\"token\\":12","since_ms":1}`;
  assert.deepEqual(parse(text), { token: largest, validUntilBoottimeNs: 9007199254740993n, name: '"token":12', sinceMs: 1 });
  assert.equal(stringify({ kind: "leader", name: '"token":"1"', token: largest, timeoutMs: undefined }), `{"kind":"leader","name":"\\"token\\":\\"1\\"","token":${largest}}`);
  assert.equal(stringify({ maxHoldMs: 3, attributes: { proxyId: "x" } }), '{"max_hold_ms":3,"attributes":{"proxy_id":"x"}}');
});

test("an event has its name as its type", () => {
  const lost = parseEvent("lost", '{"hold":"h","kind":"leader","name":"n","token":7,"reason":"max_hold"}');
  assert.deepEqual(lost, { type: "lost", hold: "h", kind: "leader", name: "n", token: 7n, reason: "max_hold" });
  const message = parseEvent("message", '{"project":"p","direct":true,"payload":{"token":1,"snake_case":2}}');
  assert.deepEqual(message, { type: "message", project: "p", direct: true, payload: { token: 1, snake_case: 2 } });
  assert.equal(parseEvent("of_a_later_version", "{}"), undefined);
});

test("a hold that ends at its last instant has lasted as long as it may, however late its grant was heard of", () => {
  const second = 1_000_000_000n;
  const ended = (ttlMs: number, last: bigint): string | undefined => {
    const reply: Acquired = {
      hold: "h", kind: "leader", name: "n", state: "held", token: 1n, ttlMs, validMs: 0, validUntilBoottimeNs: 2n * second, slot: 0,
    };
    const cell = new Cell(reply, 0);
    cell.maxHoldMs = 5_000;
    cell.granted(reply);
    cell.expire(last, "");
    return cell.stage.is === "lost" ? cell.stage.lost.reason : undefined;
  };
  assert.equal(ended(10_000, 2n * second), "max_hold", "shorter than its ttl");
  assert.equal(ended(2_000, 5n * second), "max_hold", "renewed to the end");
  assert.equal(ended(2_000, 4n * second), "expired", "not renewed");
});
