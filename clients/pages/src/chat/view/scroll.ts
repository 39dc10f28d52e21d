import type { Conversation } from "../model/conversation";
import type { Chunk } from "../model/timeline";
import { Heights, type Span, sameSpan, spanOf } from "./window";

const atBottomWithin = 2; // pixels: a scroll position may be a fraction

/** Anchor is a row and its position in the viewport, to which it is moved back. */
interface Anchor {
  row: Element;
  top: number;
}

/**
 * Scroll decides which chunks of a conversation are drawn, and keeps the visible rows in place. The
 * log is anchored at its bottom (column-reverse): scrollTop is 0 at the newest message and negative
 * above it, so that content inserted above does not move the visible rows. Content inserted below
 * is not drawn while the reader is far from the end. Near the end, the row at the top of the
 * viewport is moved back to its position.
 */
export class Scroll {
  readonly #conversation: Conversation;
  readonly #changed: () => void;
  readonly #heights = new Heights();
  #box: HTMLElement | null = null;
  #chunks: readonly Chunk[] = [];
  #drawn: Span = { first: 0, end: 0, above: 0, below: 0 };
  #pin: number | null = null; // the last chunk that is drawn while the reader is far from the end; null near the end
  #width = 0;
  #bottom = true;
  #anchor: Anchor | null = null;

  /**
   * changed is called when other chunks must be drawn, or the reader reaches or leaves the bottom.
   */
  constructor(conversation: Conversation, changed: () => void) {
    this.#conversation = conversation;
    this.#changed = changed;
  }

  /** True if the newest messages are visible. */
  get bottom(): boolean {
    return this.#bottom;
  }

  /** True if the last loaded chunk is drawn, so that pending messages can follow it. */
  get tail(): boolean {
    return this.#pin === null;
  }

  /** Attaches the scrolling element. The returned function detaches it. */
  attach(box: HTMLElement): () => void {
    this.#box = box;
    this.#width = box.clientWidth;
    const sized = new ResizeObserver(() => this.#resized());
    const scrolled = () => this.settle();
    sized.observe(box);
    box.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      sized.disconnect();
      box.removeEventListener("scroll", scrolled);
      this.#box = null;
    };
  }

  /** Returns which chunks to draw. Call it before the document changes. */
  plan(chunks: readonly Chunk[]): Span {
    this.#anchor = this.#find();
    const pin = this.#pin;
    this.#chunks = pin === null ? chunks : chunks.filter((c) => c.index <= pin);
    this.#drawn = this.#wanted();
    return this.#drawn;
  }

  /**
   * Restores the reader's position, and checks whether to draw or load more. Call it after the
   * document changed.
   */
  planned(): void {
    const { row, top } = this.#anchor ?? {};
    if (this.#box && row?.isConnected && top !== undefined) {
      const moved = row.getBoundingClientRect().top - top;
      if (Math.abs(moved) >= 1) this.#box.scrollTop += moved;
    }
    this.settle();
  }

  /** Measures the chunks, requests another drawing if necessary, and loads more near an end. */
  settle(): void {
    const box = this.#box;
    if (!box) return;
    this.#measure(box);
    const below = -box.scrollTop;
    const height = box.clientHeight;
    const before = [this.#pin, this.#bottom];
    if (below < height) this.#pin = null;
    else if (below > 2 * height && this.#pin === null) this.#pin = this.#chunks.at(-1)?.index ?? null;
    this.#bottom = below <= atBottomWithin && this.#pin === null && this.#conversation.view.value.atEnd;
    const turned = before[0] !== this.#pin || before[1] !== this.#bottom;
    if (turned || !sameSpan(this.#wanted(), this.#drawn)) this.#changed();
    this.#load(box);
  }

  /** Scrolls to the newest message, and loads it if necessary. */
  toBottom(): void {
    this.#pin = null;
    this.#anchor = null;
    if (this.#box) this.#box.scrollTop = 0;
    if (!this.#conversation.view.value.atEnd) void this.#conversation.loadNewest();
    this.#changed();
  }

  /** Scrolls to the first loaded message. The messages before it are then loaded. */
  toTop(): void {
    if (this.#box) this.#box.scrollTop = -this.#box.scrollHeight;
  }

  /**
   * Scrolls an element that is above the viewport to the viewport's top. It does nothing for any
   * other element and for null.
   */
  toElement(element: Element | null): void {
    if (!this.#box || !element) return;
    const above = element.getBoundingClientRect().top - this.#box.getBoundingClientRect().top;
    if (above < 0) this.#box.scrollTop += above - 16;
  }

  #wanted(): Span {
    const below = -(this.#box?.scrollTop ?? 0);
    const height = this.#box?.clientHeight ?? 800;
    const margin = Math.max(1_000, 1.2 * height);
    return spanOf(this.#chunks, this.#heights, below - margin, below + height + margin);
  }

  #load(box: HTMLElement): void {
    const { loaded, loading, error } = this.#conversation.view.value;
    if (!loaded || loading || error) return;
    const ahead = Math.max(2_500, 3 * box.clientHeight);
    if (box.scrollHeight + box.scrollTop - box.clientHeight < ahead) void this.#conversation.loadOlder();
    else if (-box.scrollTop < ahead) void this.#conversation.loadNewer();
  }

  #measure(box: HTMLElement): void {
    for (const element of box.querySelectorAll<HTMLElement>("[data-chunk]")) {
      const { chunk, size } = element.dataset;
      this.#heights.measured(Number(chunk), element.offsetHeight, Number(size));
    }
  }

  #find(): Anchor | null {
    const box = this.#box;
    if (!box || -box.scrollTop <= atBottomWithin) return null;
    const edge = box.getBoundingClientRect().top;
    const below = (e: Element) => e.getBoundingClientRect().bottom > edge;
    const chunk = [...box.querySelectorAll("[data-chunk]")].find(below);
    const row = chunk && [...chunk.querySelectorAll("[data-seq]")].find(below);
    if (!row) return null;
    const top = row.getBoundingClientRect().top;
    // Errors of less than a pixel after moving a row back must not add up.
    return this.#anchor?.row === row && Math.abs(this.#anchor.top - top) < 1 ? this.#anchor : { row, top };
  }

  #resized(): void {
    const width = this.#box?.clientWidth ?? 0;
    if (width !== this.#width) this.#heights.reset();
    this.#width = width;
    this.settle();
  }
}
