// A store that refuses a writer that was too late to notice: it keeps the token of the last write.

import { tenure } from "tenure";

class Store {
  #fence = 0n;
  #value = "";

  write(value: string, fence: bigint): void {
    if (fence < this.#fence) throw new Error(`somebody with a greater token than ${fence} has written`);
    this.#fence = fence;
    this.#value = value;
  }

  read(): string {
    return this.#value;
  }
}

const store = new Store();
const earlier = await tenure.leader("report").run(({ token }) => {
  store.write("the first", token);
  return token;
});
await tenure.leader("report").run(({ token }) => store.write("the second", token));
try {
  store.write("from one who slept", earlier);
} catch (error) {
  console.log((error as Error).message);
}
console.log(store.read());
