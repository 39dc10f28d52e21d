import { Marked, type Token } from "marked";

/** Block is a top-level part of a Markdown text. */
export interface Block {
  /** The Markdown. */
  readonly raw: string;
  /** The HTML, which is not sanitized. */
  readonly html: string;
}

// Images are links: the page's policy allows no others, and a text must not make the browser call
// an address. Raw HTML is shown as text. Headings begin below those of the page.
const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => `<a href="${escaped(href)}">${escaped(text || href)}</a>`,
    checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
    code: ({ text, lang }) => {
      const language = /^[\w+#.-]+/.exec(lang ?? "")?.[0] ?? "";
      return `<pre data-language="${escaped(language)}"><code>${escaped(text)}</code></pre>`;
    },
    heading({ tokens, depth }) {
      const level = Math.min(6, depth + 2);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
  },
});

/**
 * blocks returns the top-level parts of a Markdown text. Parts that did not change since before,
 * the result for an earlier text, are taken from it, so that a growing text costs little.
 */
export function blocks(text: string, before: readonly Block[] = []): readonly Block[] {
  const found: Block[] = [];
  for (const token of marked.lexer(text) as Token[]) {
    if (token.type === "space" || token.type === "def") continue;
    const known = before[found.length];
    found.push(known?.raw === token.raw ? known : { raw: token.raw, html: marked.parser([token]) });
  }
  return found;
}

function escaped(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}
