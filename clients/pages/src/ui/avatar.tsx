import { userName } from "./name";

/**
 * hues is the number of colors for users and for the lines of charts: the classes hue-0 to hue-9.
 */
export const hues = 10;

/** hue returns the number of a user's color. It is the same on every page. */
export function hue(user: string): number {
  let hash = 0;
  for (let i = 0; i < user.length; i++) hash = (Math.imul(hash, 31) + user.charCodeAt(i)) >>> 0;
  return hash % hues;
}

/** initials returns one or two letters of a user's name. */
export function initials(user: string): string {
  const words = user.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const letters =
    words.length > 1 ? [words[0], words[1]].map((w) => [...(w ?? "")][0]) : [...(words[0] ?? user)].slice(0, 2);
  return letters.join("").toUpperCase();
}

/**
 * Avatar shows a user's initials on their color. It is hidden from screen readers, because the name
 * is next to it.
 */
export function Avatar({ user }: { user: string }) {
  return (
    <span class={`avatar hue-${hue(user)}`} aria-hidden="true">
      {initials(userName(user))}
    </span>
  );
}
