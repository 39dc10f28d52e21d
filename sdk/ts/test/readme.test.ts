import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("..", import.meta.url));

/** Declarations of the names that the README's code uses without declaring them. */
const granted = `
declare const client: Client;
declare const token: string;
declare const address: string;
declare const msgId: string;
declare let stored: Position;
declare function generate(signal: AbortSignal): AsyncIterable<string>;
`;

it("the README's code compiles", async () => {
  const readme = await readFile(`${root}/README.md`, "utf8");
  const blocks = [...readme.matchAll(/```ts\n(.*?)```/gs)].map((m) => m[1] ?? "");
  expect(blocks.length).toBe(7);
  const body = blocks.map((code, n) => {
    const lines = code.split("\n").filter((line) => !line.startsWith("import "));
    return `export async function example${n}() {\n${lines.join("\n")}\n}`;
  });
  // Next to the tests, so that imports resolve.
  const dir = await mkdtemp(`${root}/test/readme-`);
  try {
    const imports = `import { after, Client, fromStart, live, OpenTexts, ParleyError, type Position } from "../../src/index.js";\n`;
    await writeFile(`${dir}/readme.ts`, imports + granted + body.join("\n"));
    const compilerOptions = { noUnusedLocals: false };
    const config = { extends: "../../tsconfig.json", compilerOptions, include: ["."] };
    await writeFile(`${dir}/tsconfig.json`, JSON.stringify(config));
    const tsc = fileURLToPath(import.meta.resolve("typescript/package.json")).replace("package.json", "bin/tsc");
    const { stdout } = await promisify(execFile)(process.execPath, [tsc, "-p", dir]).catch((err) => err);
    expect(stdout).toBe("");
  } finally {
    await rm(dir, { recursive: true });
  }
});
