import type { Chunk } from "../model/timeline";

/**
 * Span is the range of chunks to draw, by index in the list, and the heights of the others, in
 * pixels.
 */
export interface Span {
  /** The first drawn chunk, and the one after the last. */
  readonly first: number;
  readonly end: number;
  readonly above: number;
  readonly below: number;
}

const likelyRow = 40;

/**
 * Heights holds the heights of chunks in pixels: measured, or estimated from the average height of
 * a message.
 */
export class Heights {
  #known = new Map<number, { height: number; messages: number }>();
  #height = 0;
  #messages = 0;

  /**
   * Records a chunk's measured height. It reports whether the height or the number of messages
   * changed.
   */
  measured(index: number, height: number, messages: number): boolean {
    const old = this.#known.get(index);
    if (old?.height === height && old.messages === messages) return false;
    this.#height += height - (old?.height ?? 0);
    this.#messages += messages - (old?.messages ?? 0);
    this.#known.set(index, { height, messages });
    return true;
  }

  of(chunk: Chunk): number {
    const known = this.#known.get(chunk.index);
    if (known?.messages === chunk.messages.length) return known.height;
    return chunk.messages.length * (this.#messages > 0 ? this.#height / this.#messages : likelyRow);
  }

  /** Discards the measured heights after a change of width, but keeps the average. */
  reset(): void {
    const average = this.#messages > 0 ? this.#height / this.#messages : likelyRow;
    this.#known.clear();
    this.#height = average;
    this.#messages = 1;
  }
}

/**
 * spanOf returns the chunks to draw: those between two heights in pixels, measured from the end of
 * the list upwards. There is at least one unless chunks is empty.
 */
export function spanOf(chunks: readonly Chunk[], heights: Heights, from: number, to: number): Span {
  let end = chunks.length;
  let below = 0;
  for (; end > 1; end--) {
    const height = heights.of(chunks[end - 1] as Chunk);
    if (below + height >= from) break;
    below += height;
  }
  let first = end;
  for (let at = below; first > 0 && (at < to || first === end); first--) at += heights.of(chunks[first - 1] as Chunk);
  let above = 0;
  for (let i = 0; i < first; i++) above += heights.of(chunks[i] as Chunk);
  return { first, end, above, below };
}

/** sameSpan reports whether two spans draw the same chunks. */
export function sameSpan(a: Span, b: Span): boolean {
  return a.first === b.first && a.end === b.end;
}
