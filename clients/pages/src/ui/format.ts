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

/** timeOfDay returns the time of day in the viewer's locale. */
export function timeOfDay(at: Date): string {
  return time.format(at);
}

/** dayAndTime returns the day and the time to the second. */
export function dayAndTime(at: Date): string {
  return full.format(at);
}

/** sameDay reports whether two times are on the same day in the viewer's time zone. */
export function sameDay(a: Date, b: Date): boolean {
  return a.getDate() === b.getDate() && a.getMonth() === b.getMonth() && a.getFullYear() === b.getFullYear();
}

/** dayName returns the name of a day: today, yesterday, or its date. */
export function dayName(at: Date, now: Date): string {
  const yesterday = new Date(now.getFullYear(), now.getMonth(), now.getDate() - 1);
  if (sameDay(at, now)) return relative.format(0, "day");
  if (sameDay(at, yesterday)) return relative.format(-1, "day");
  return (at.getFullYear() === now.getFullYear() ? day : dayAndYear).format(at);
}

/** briefly returns the time if it is today, otherwise the date. */
export function briefly(at: Date, now: Date): string {
  return sameDay(at, now) ? time.format(at) : date.format(at);
}

const whole = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

/** count formats a count, exactly up to six digits. */
export function count(n: number): string {
  return n < 1_000_000 ? whole.format(n) : compact.format(n);
}

/** brief formats a count in few characters, for an axis. It is exact below 10,000. */
export function brief(n: number): string {
  return n < 10_000 ? whole.format(n) : compact.format(n);
}

/** perSecond formats a rate per second. It returns a dash for null. */
export function perSecond(rate: number | null): string {
  if (rate === null) return "–";
  if (rate === 0) return "0/s";
  if (rate < 0.1) return "<0.1/s";
  return `${rate < 10 ? Number(rate.toFixed(1)) : count(Math.round(rate))}/s`;
}

/** duration formats a duration given in milliseconds, in the largest unit that fits. */
export function duration(ms: number): string {
  const s = ms / 1_000;
  if (s < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (s < 10) return `${Number(s.toFixed(1))} s`;
  if (s < 100) return `${Math.round(s)} s`;
  if (s < 5_400) return `${Math.round(s / 60)} min`;
  if (s < 129_600) return `${Math.round(s / 3_600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** size formats a size given in bytes. */
export function size(bytes: number): string {
  if (bytes < 1_024) return `${bytes} B`;
  return bytes < 1_048_576
    ? `${Number((bytes / 1_024).toFixed(1))} KiB`
    : `${Number((bytes / 1_048_576).toFixed(1))} MiB`;
}
