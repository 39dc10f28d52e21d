/** How long samples are kept, in milliseconds. */
export const span = 600_000;

/** A rate is taken over this long, so that it does not jump with the moment of each poll. */
export const rateSpan = 5_000;

/** Over less than this a rate says little: one message more or less decides. */
const rateLeast = 500;

/** Two samples farther apart than this have nothing to say about what lies between. */
const farApart = 120_000;

/** A moment and a value; null where there is none, and a line is broken. */
export interface Point {
  at: number;
  value: number | null;
}

interface Sample {
  at: number;
  values: Readonly<Record<string, number>>;
  /** Nothing is known of the time before it. */
  first: boolean;
}

/** Keeps named numbers over the last ten minutes. */
export class Track {
  #samples: Sample[] = [];
  #broken = true;

  /** Adds what was seen at a moment. Moments grow; one that does not is passed over. */
  add(at: number, values: Readonly<Record<string, number>>): void {
    const last = this.#samples.at(-1);
    if (last && at <= last.at) return;
    const first = this.#broken || !last || at - last.at > farApart;
    this.#samples.push({ at, values, first });
    this.#broken = false;
    const kept = this.#samples.findIndex((sample) => sample.at >= at - span);
    if (kept > 0) this.#samples.splice(0, kept);
  }

  /** Says that nothing is known from the last sample to the next. */
  break(): void {
    this.#broken = true;
  }

  /** Forgets all. */
  clear(): void {
    this.#samples = [];
    this.#broken = true;
  }

  /** A number over time. */
  line(name: string): Point[] {
    const points: Point[] = [];
    for (const { at, values, first } of this.#samples) {
      if (first && points.length > 0) points.push({ at, value: null });
      points.push({ at, value: values[name] ?? null });
    }
    return points;
  }

  /** How fast a counter grew over time, per second. Where it fell it began anew: that is no rate. */
  rates(name: string): Point[] {
    const points: Point[] = [];
    let run = 0; // since when the counter has been watched without a break
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

  /** How fast a counter grows now, per second; null while that is not known. */
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
