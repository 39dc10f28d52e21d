/** The time over which a rate is computed at least, if the counter is known for so long. */
const span = 5_000;

/** The least time over which a rate is computed: in less, a single message would change it much. */
const least = 500;

/** The maximum time between two values. Beyond it the counter may have been reset in between. */
const farApart = 300_000;

/** Rate computes the rate of a counter from values of it. Times are in milliseconds. */
export class Rate {
  #values: { at: number; value: number }[] = [];

  /** Adds a value of the counter. One that decreased or was not known for long begins anew. */
  add(at: number, value: number): void {
    const last = this.#values.at(-1);
    if (last && at <= last.at) return;
    if (last && (value < last.value || at - last.at > farApart)) this.#values = [];
    this.#values.push({ at, value });
    // The newest value that is older than the span, and all later ones.
    const kept = this.#values.findLastIndex((one) => one.at <= at - span);
    if (kept > 0) this.#values.splice(0, kept);
  }

  /** The rate per second up to the last value. Null while it is not known. */
  get value(): number | null {
    const [first, last] = [this.#values[0], this.#values.at(-1)];
    if (!first || !last || last.at - first.at < least) return null;
    return ((last.value - first.value) * 1_000) / (last.at - first.at);
  }
}
