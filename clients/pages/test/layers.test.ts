import { readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { expect, test } from "vitest";

const src = join(import.meta.dirname, "../src");

// The folders of src that each folder may import. Add a line like chat's for a new page.
const allowed: Record<string, readonly string[]> = {
  connection: [],
  ui: ["connection"],
  chat: ["ui", "connection"],
  queues: ["ui", "connection"],
  assistant: ["ui", "connection"],
};

test("pages import ui and connection but not each other, and models import no views", () => {
  const files = readdirSync(src, { recursive: true, encoding: "utf8" }).filter((f) => /\.tsx?$/.test(f));
  const wrong: string[] = [];
  const seen = new Set<string>();
  for (const file of files) {
    const folder = file.split("/")[0] ?? "";
    const text = readFileSync(join(src, file), "utf8");
    for (const [, specifier = ""] of text.matchAll(/(?:from|import) "(\.[^"]+)"/g)) {
      const target = relative(src, join(src, dirname(file), specifier));
      const other = target.split("/")[0] ?? "";
      if (other !== folder) seen.add(`${folder} ${other}`);
      if (other !== folder && !allowed[folder]?.includes(other)) wrong.push(`${file} imports ${target}`);
      if (file.includes("/model/") && (other === "ui" || target.includes("/view/"))) wrong.push(`${file} draws`);
    }
    if (file.includes("/model/") && /from "preact["/]/.test(text)) wrong.push(`${file} imports preact`);
  }
  expect(wrong).toEqual([]);
  expect([...seen].sort()).toEqual(
    Object.entries(allowed)
      .flatMap(([from, to]) => to.map((t) => `${from} ${t}`))
      .sort(),
  );
});
