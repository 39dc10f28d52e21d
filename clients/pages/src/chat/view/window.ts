import type { Chunk } from "../model/timeline";

/** Span is which chunks are drawn, by place in the list, and the heights that stand for the others, in pixels. */
export interface Span {
  /** The first chunk drawn, and the one after the last. */
  readonly first: number;
  readonly end: number;
  readonly above: number;
  readonly below: number;
}

const likelyRow = 40;

/** Heights knows how high chunks are: as measured, else as their messages are on average. */
export class Heights {
  #known = new Map<number, { height: number; messages: number }>();
  #height = 0;
  #messages = 0;

  /** Takes a chunk's measured height. It says whether that is news. */
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

  /** Forgets what was measured, as after a change of width, but for the average. */
  reset(): void {
    const average = this.#messages > 0 ? this.#height / this.#messages : likelyRow;
    this.#known.clear();
    this.#height = average;
    this.#messages = 1;
  }
}

/**
 * Says which chunks to draw: those that lie between two heights, counted in pixels from the end of the list upwards.
 * At least one is drawn, if there is any.
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

/** Whether two spans draw the same chunks. */
export function sameSpan(a: Span, b: Span): boolean {
  return a.first === b.first && a.end === b.end;
}
