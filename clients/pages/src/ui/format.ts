const time = new Intl.DateTimeFormat(undefined, { hour: "numeric", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });
const dayAndYear = new Intl.DateTimeFormat(undefined, {
  weekday: "long",
  day: "numeric",
  month: "long",
  year: "numeric",
});
const date = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" });
const relative = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" });

/** The time of day, as the viewer's locale writes it. */
export function timeOfDay(at: Date): string {
  return time.format(at);
}

/** Day and time, to the second. */
export function dayAndTime(at: Date): string {
  return full.format(at);
}

/** Whether two moments lie on one day of the viewer's. */
export function sameDay(a: Date, b: Date): boolean {
  return a.getDate() === b.getDate() && a.getMonth() === b.getMonth() && a.getFullYear() === b.getFullYear();
}

/** The name of a day: today, yesterday, or its date. */
export function dayName(at: Date, now: Date): string {
  const yesterday = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1);
  if (sameDay(at, now)) return relative.format(0, "day");
  if (sameDay(at, yesterday)) return relative.format(-1, "day");
  return (at.getFullYear() === now.getFullYear() ? day : dayAndYear).format(at);
}

/** A moment in few characters: the time if it is today, else the date. */
export function briefly(at: Date, now: Date): string {
  return sameDay(at, now) ? time.format(at) : date.format(at);
}

/** One or two letters that stand for a user. */
export function initials(user: string): string {
  const words = user.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const letters =
    words.length > 1 ? [words[0], words[1]].map((w) => [...(w ?? "")][0]) : [...(words[0] ?? user)].slice(0, 2);
  return letters.join("").toUpperCase();
}

/** How many colours users have. */
export const hues = 10;

/** A user's colour, the same on every page. */
export function hue(user: string): number {
  let hash = 0;
  for (let i = 0; i < user.length; i++) hash = (Math.imul(hash, 31) + user.charCodeAt(i)) >>> 0;
  return hash % hues;
}

/** A text in pieces: those that are web addresses are links. Joined they are the text. */
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

// Punctuation at the end belongs to the sentence, and so does a bracket that the address does not open.
function withoutTail(url: string): string {
  for (;;) {
    const last = url.at(-1) ?? "";
    const opens = last === ")" && url.split("(").length < url.split(")").length;
    if (!opens && !".,;:!?'*]}".includes(last)) return url;
    url = url.slice(0, -1);
  }
}
