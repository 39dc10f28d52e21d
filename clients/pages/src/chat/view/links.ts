/**
 * pieces splits a text into web addresses, which are links, and other text. Joined, the pieces are
 * the text.
 */
export function pieces(text: string): { text: string; link: boolean }[] {
  const found: { text: string; link: boolean }[] = [];
  let from = 0;
  for (const match of text.matchAll(/\bhttps?:\/\/[^\s<>"]+/gi)) {
    const url = withoutTail(match[0]);
    if (!URL.canParse(url)) continue;
    if (match.index > from) found.push({ text: text.slice(from, match.index), link: false });
    found.push({ text: url, link: true });
    from = match.index + url.length;
  }
  if (from < text.length) found.push({ text: text.slice(from), link: false });
  return found;
}

// Punctuation at the end belongs to the sentence, and so does a closing bracket without an opening
// one in the address.
function withoutTail(url: string): string {
  for (;;) {
    const last = url.at(-1) ?? "";
    const opens = last === ")" && url.split("(").length < url.split(")").length;
    if (!opens && !".,;:!?'*]}".includes(last)) return url;
    url = url.slice(0, -1);
  }
}
