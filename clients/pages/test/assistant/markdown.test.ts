import { describe, expect, test } from "vitest";
import { blocks } from "../../src/assistant/markdown";
import { parseRoute, routeFragment } from "../../src/assistant/route";

const html = (text: string) =>
  blocks(text)
    .map((b) => b.html.trim())
    .join("");

describe("markdown", () => {
  test("raw HTML is text, also within a line", () => {
    expect(html("<b>x</b> & <i>")).not.toMatch(/<(?!\/?p>)/);
    expect(html('<div onclick="x">\nblock\n</div>')).not.toContain("<div");
    expect(html("`<b>`")).toContain("&lt;b&gt;");
    expect(html("```\n<b>\n```")).toContain("&lt;b&gt;");
  });

  test("images are links, boxes are signs, headings begin below the page's", () => {
    expect(html('![a "b"](https://example.com/x.png)')).toBe(
      '<p><a href="https://example.com/x.png">a &quot;b&quot;</a></p>',
    );
    expect(html("![](https://example.com/x.png)")).toContain(">https://example.com/x.png</a>");
    expect(html("- [x] done\n- [ ] open")).toMatch(/☑ .*done[\s\S]*☐ .*open/);
    expect(html("# one")).toBe("<h3>one</h3>");
    expect(html("##### *five*")).toBe("<h6><em>five</em></h6>");
  });

  test("a block of code has its language, and one that is not finished too", () => {
    expect(html("```c++ title\nint x;\n```")).toBe('<pre data-language="c++"><code>int x;</code></pre>');
    expect(html('```"><img\nx')).toBe('<pre data-language=""><code>x</code></pre>');
    expect(html("```go\nfunc main() {")).toContain('<pre data-language="go"><code>func main() {</code>');
  });

  test("parts that did not change are kept while a text grows", () => {
    const before = blocks("one\n\ntwo");
    const after = blocks("one\n\ntwo and\n\nthree", before);
    expect(after.map((b) => b.html.trim())).toEqual(["<p>one</p>", "<p>two and</p>", "<p>three</p>"]);
    expect(after[0]).toBe(before[0]);
    expect(after[1]).not.toBe(before[1]);
  });

  test("a reference is a link, and its definition is not shown", () => {
    expect(html("see [x][1]\n\n[1]: https://example.com")).toBe('<p>see <a href="https://example.com">x</a></p>');
  });
});

test("routes", () => {
  for (const route of [{ show: "list" }, { show: "new" }, { show: "session", id: "a-_1" }] as const) {
    expect(parseRoute(routeFragment(route))).toEqual(route);
  }
  expect(parseRoute("#session=no such!")).toEqual({ show: "list" });
  expect(parseRoute(`#session=${"x".repeat(65)}`)).toEqual({ show: "list" });
});
