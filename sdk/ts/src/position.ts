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

/** The maximum number of channels of which a client records the highest seq. */
export const maxHeads = 10_000;

/**
 * Heads holds the highest seq of each channel that the server reported to the client, for the up to
 * 10,000 channels that were observed last. A history request sends it as min_seq. For a channel
 * that was dropped no min_seq is sent.
 */
export class Heads {
  /** The channel that was observed last is at the end. */
  readonly #known = new Map<string, { seq: number; epoch: string }>();

  /**
   * observe records a seq, unless a higher one is recorded. With an epoch other than the recorded
   * one it replaces the recorded seq in any case. An empty epoch means the recorded one.
   */
  observe(channelId: string, epoch: string, seq: number): void {
    const known = this.get(channelId);
    const of = epoch || known.epoch;
    this.#put(channelId, { seq: known.epoch === of ? Math.max(seq, known.seq) : seq, epoch: of });
  }

  /** reset replaces the recorded seq of a channel that lost entries. */
  reset(position: Position): void {
    this.#put(position.channelId, { seq: position.seq, epoch: position.epoch });
  }

  get(channelId: string): { seq: number; epoch: string } {
    return this.#known.get(channelId) ?? { seq: 0, epoch: "" };
  }

  #put(channelId: string, head: { seq: number; epoch: string }): void {
    // Deleted first, because a Map keeps the place of a known key.
    this.#known.delete(channelId);
    this.#known.set(channelId, head);
    if (this.#known.size > maxHeads) {
      const [oldest] = this.#known.keys();
      this.#known.delete(oldest as string);
    }
  }
}
