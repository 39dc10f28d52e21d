import type { Sample } from "./types";

/** span is the time for which samples are kept, in milliseconds: that of the server. */
export const span = 3_600_000;

/**
 * The maximum time between two samples in milliseconds. The server records one every 5 s. Beyond
 * this time, the values between them are unknown.
 */
const farApart = 20_000;

/** rateSpan is the time over which a rate is computed, in milliseconds. */
const rateSpan = 10_000;

/** Point is a value at a time. A null value breaks the line. */
export interface Point {
  at: number;
  value: number | null;
}

/**
 * merged adds newer samples of the server to earlier ones. Each node records its own: a response of
 * a node that has recorded for less time does not shorten the history.
 */
export function merged(earlier: readonly Sample[], newer: readonly Sample[]): readonly Sample[] {
  const [first, last] = [newer[0], newer.at(-1)];
  if (!first || !last) return earlier;
  const before = earlier.filter((sample) => sample.at < first.at);
  const after = earlier.filter((sample) => sample.at > last.at);
  const all = [...before, ...newer, ...after];
  const from = (all.at(-1)?.at ?? 0) - span;
  return all.filter((sample) => sample.at >= from);
}

/** line returns a number of the samples over time. undefined is an unknown value. */
export function line(samples: readonly Sample[], of: (sample: Sample) => number | undefined): Point[] {
  const points: Point[] = [];
  for (const [i, sample] of samples.entries()) {
    if (i > 0 && apart(samples, i)) points.push({ at: sample.at, value: null });
    points.push({ at: sample.at, value: of(sample) ?? null });
  }
  return points;
}

/**
 * rates returns the rate of a counter over time, per second. A counter that decreased was reset, so
 * there is no rate over that time.
 */
export function rates(samples: readonly Sample[], of: (sample: Sample) => number | undefined): Point[] {
  const points: Point[] = [];
  let run = 0; // the first sample of the current run without a break
  let from = 0;
  for (const [i, sample] of samples.entries()) {
    const value = of(sample);
    const earlier = samples[i - 1];
    const before = earlier && of(earlier);
    if (value === undefined || before === undefined || value < before || apart(samples, i)) run = i;
    while (from < run || (from < i - 1 && (samples[from + 1]?.at ?? 0) <= sample.at - rateSpan)) from++;
    const start = samples[from];
    const began = start && of(start);
    const known = start && sample.at > start.at && value !== undefined && began !== undefined;
    points.push({ at: sample.at, value: known ? ((value - began) * 1_000) / (sample.at - start.at) : null });
  }
  return points;
}

function apart(samples: readonly Sample[], i: number): boolean {
  return (samples[i]?.at ?? 0) - (samples[i - 1]?.at ?? 0) > farApart;
}
