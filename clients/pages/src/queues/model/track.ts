/** span is the time for which samples are kept, in milliseconds. */
export const span = 600_000;

/**
 * rateSpan is the time over which a rate is computed, in milliseconds, so that it does not vary
 * with the times of the polls.
 */
export const rateSpan = 5_000;

/**
 * The minimum time over which a rate is computed, in milliseconds. Over less time, a single message
 * would change the rate too much.
 */
const rateLeast = 500;

/**
 * The maximum time between two samples in milliseconds. Beyond it, the values between them are
 * unknown.
 */
const farApart = 120_000;

/** Point is a value at a time. A null value breaks the line. */
export interface Point {
  at: number;
  value: number | null;
}

interface Sample {
  at: number;
  values: Readonly<Record<string, number>>;
  /** True if the values before the sample are unknown. */
  first: boolean;
}

/** Track holds named numbers of the last ten minutes. */
export class Track {
  #samples: Sample[] = [];
  #broken = true;

  /** Adds a sample. It is ignored unless its time is later than the last one's. */
  add(at: number, values: Readonly<Record<string, number>>): void {
    const last = this.#samples.at(-1);
    if (last && at <= last.at) return;
    const first = this.#broken || !last || at - last.at > farApart;
    this.#samples.push({ at, values, first });
    this.#broken = false;
    const kept = this.#samples.findIndex((sample) => sample.at >= at - span);
    if (kept > 0) this.#samples.splice(0, kept);
  }

  /** Records that the values between the last sample and the next are unknown. */
  break(): void {
    this.#broken = true;
  }

  /** Removes all samples. */
  clear(): void {
    this.#samples = [];
    this.#broken = true;
  }

  /** Returns a number over time, oldest value first. */
  line(name: string): Point[] {
    const points: Point[] = [];
    for (const { at, values, first } of this.#samples) {
      if (first && points.length > 0) points.push({ at, value: null });
      points.push({ at, value: values[name] ?? null });
    }
    return points;
  }

  /**
   * Returns the rate of a counter over time, per second. A counter that decreased was reset, so
   * there is no rate over that time.
   */
  rates(name: string): Point[] {
    const points: Point[] = [];
    let run = 0; // the first sample of the current run without a break
    let from = 0;
    for (const [i, sample] of this.#samples.entries()) {
      const value = sample.values[name];
      const before = this.#samples[i - 1]?.values[name];
      if (sample.first || value === undefined || before === undefined || value < before) run = i;
      while (from < run || (from < i - 1 && (this.#samples[from + 1]?.at ?? 0) <= sample.at - rateSpan)) from++;
      const start = this.#samples[from];
      const began = start?.values[name];
      const known = start && sample.at - start.at >= rateLeast && value !== undefined && began !== undefined;
      points.push({ at: sample.at, value: known ? ((value - began) * 1_000) / (sample.at - start.at) : null });
    }
    return points;
  }

  /** Returns the current rate of a counter, per second. Null while it is not known. */
  rate(name: string): number | null {
    const last = this.#samples.at(-1);
    if (!last || this.#broken) return null;
    let from = this.#samples.length - 1;
    for (let i = from; i > 0; i--) {
      const [a, b] = [this.#samples[i - 1], this.#samples[i]];
      const [x, y] = [a?.values[name], b?.values[name]];
      if (!a || b?.first || x === undefined || y === undefined || y < x) break;
      from = i - 1;
      if (a.at <= last.at - rateSpan) break;
    }
    const start = this.#samples[from];
    const [began, value] = [start?.values[name], last.values[name]];
    if (!start || last.at - start.at < rateLeast || began === undefined || value === undefined) return null;
    return ((value - began) * 1_000) / (last.at - start.at);
  }
}
