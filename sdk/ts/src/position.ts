/**
 * Position is a place in a channel's log, up to and with which everything has been seen. Store it, and resume a
 * subscription from it with after().
 */
export interface Position {
  channelId: string;
  seq: number;
  /** The log's epoch: positions are only comparable within one. Empty if it is not known. */
  epoch: string;
}

/**
 * Heads remembers, for each channel, the highest seq that the client was told: what min_seq asks to be at least as new
 * as.
 */
export class Heads {
  readonly #known = new Map<string, { seq: number; epoch: string }>();

  /**
   * note records that the client was told seq. Another epoch than the one known starts anew; an empty one means the
   * same.
   */
  note(channelId: string, epoch: string, seq: number): void {
    const known = this.#known.get(channelId);
    const of = epoch || known?.epoch || "";
    if (known === undefined || known.epoch !== of || known.seq < seq) {
      this.#known.set(channelId, { seq, epoch: of });
    }
  }

  /** reset forgets what was known of the channel, which has lost entries. */
  reset(position: Position): void {
    this.#known.set(position.channelId, { seq: position.seq, epoch: position.epoch });
  }

  get(channelId: string): { seq: number; epoch: string } {
    return this.#known.get(channelId) ?? { seq: 0, epoch: "" };
  }
}
