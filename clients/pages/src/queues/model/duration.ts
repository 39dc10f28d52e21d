const units = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
  ["ms", 1],
] as const;

/**
 * parseDuration returns the milliseconds of a text such as `30s`, `1h 30m` or `0`. It returns null
 * if the text is not a duration.
 */
export function parseDuration(text: string): number | null {
  const trimmed = text.trim();
  if (trimmed === "0") return 0;
  if (!/^(?:\d+(?:\.\d+)?\s*(?:ms|d|h|m|s)\s*)+$/.test(trimmed)) return null;
  let ms = 0;
  for (const [, n, unit] of trimmed.matchAll(/(\d+(?:\.\d+)?)\s*(ms|d|h|m|s)/g)) {
    ms += Number(n) * (units.find(([name]) => name === unit)?.[1] ?? 0);
  }
  return Math.round(ms);
}

/** writeDuration returns the text of a duration that parseDuration reads. It is exact. */
export function writeDuration(ms: number): string {
  const parts: string[] = [];
  let rest = Math.round(ms);
  for (const [name, size] of units) {
    const n = Math.floor(rest / size);
    rest -= n * size;
    if (n > 0) parts.push(`${n}${name}`);
  }
  return parts.join(" ") || "0";
}
