/// <reference lib="esnext.disposable" preserve="true" />

// Early versions of Node 20 have no such symbol; the compiler's helpers for `await using` ask for it.
const symbols = Symbol as { asyncDispose?: symbol };
symbols.asyncDispose ??= Symbol.for("nodejs.asyncDispose");

export {};
