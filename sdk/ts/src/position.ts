/**
 * Position is a seq in the log of a channel, with the epoch of the log: the program has seen
 * everything up to and including seq. Store it, and resume a subscription from it with after().
 */
export interface Position {
  channelId: string;
  seq: number;
  /**
   * The epoch of the log. Positions can be compared only within one epoch. Empty if it is not
   * known.
   */
  epoch: string;
}

/**
 * Heads holds the highest seq of each channel that the server reported to the client. A history
 * request sends it as min_seq.
 */
export class Heads {
  readonly #known = new Map<string, { seq: number; epoch: string }>();

  /**
   * note records a seq, unless a higher one is recorded. With an epoch other than the recorded one
   * it replaces the recorded seq in any case. An empty epoch means the recorded one.
   */
  note(channelId: string, epoch: string, seq: number): void {
    const known = this.#known.get(channelId);
    const of = epoch || known?.epoch || "";
    if (known === undefined || known.epoch !== of || known.seq < seq) {
      this.#known.set(channelId, { seq, epoch: of });
    }
  }

  /** reset replaces the recorded seq of a channel that lost entries. */
  reset(position: Position): void {
    this.#known.set(position.channelId, { seq: position.seq, epoch: position.epoch });
  }

  get(channelId: string): { seq: number; epoch: string } {
    return this.#known.get(channelId) ?? { seq: 0, epoch: "" };
  }
}
