const whole = new Intl.NumberFormat();
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });

/** A count: exact up to six digits. */
export function count(n: number): string {
  return n < 1_000_000 ? whole.format(n) : compact.format(n);
}

/** A count in few characters, for an axis. */
export function brief(n: number): string {
  return n < 10_000 ? whole.format(n) : compact.format(n);
}

/** A rate per second; a dash while it is not known. */
export function perSecond(rate: number | null): string {
  if (rate === null) return "–";
  if (rate === 0) return "0/s";
  if (rate < 0.1) return "<0.1/s";
  return `${rate < 10 ? Number(rate.toFixed(1)) : count(Math.round(rate))}/s`;
}

/** A length of time in its largest fitting unit. */
export function duration(ms: number): string {
  const s = ms / 1_000;
  if (s < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (s < 10) return `${Number(s.toFixed(1))} s`;
  if (s < 100) return `${Math.round(s)} s`;
  if (s < 5_400) return `${Math.round(s / 60)} min`;
  if (s < 129_600) return `${Math.round(s / 3_600)} h`;
  return `${Math.round(s / 86_400)} d`;
}

/** A size in bytes. */
export function size(bytes: number): string {
  if (bytes < 1_024) return `${bytes} B`;
  return bytes < 1_048_576
    ? `${Number((bytes / 1_024).toFixed(1))} KiB`
    : `${Number((bytes / 1_048_576).toFixed(1))} MiB`;
}
