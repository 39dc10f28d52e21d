import type { Conversation } from "../model/conversation";
import type { Chunk } from "../model/timeline";
import { Heights, type Span, sameSpan, spanOf } from "./window";

const atBottomWithin = 2; // pixels: a scroll position may be a fraction

/** Anchor is a row and where it stood, so that it can be put there again. */
interface Anchor {
  row: Element;
  top: number;
}

/**
 * Scroll decides which of a conversation's chunks are drawn, and keeps what the reader sees in its place. The log hangs at
 * its bottom (column-reverse): scrollTop is 0 at the newest message and negative above it, so that nothing that is put in
 * above moves what is seen. What comes in below, far from the reader, is left out until he comes near; nearer, the row
 * at the top of the view is put back where it was.
 */
export class Scroll {
  readonly #conversation: Conversation;
  readonly #changed: () => void;
  readonly #heights = new Heights();
  #box: HTMLElement | null = null;
  #chunks: readonly Chunk[] = [];
  #drawn: Span = { first: 0, end: 0, above: 0, below: 0 };
  #pin: number | null = null; // the last chunk laid out while the reader is far from the end
  #width = 0;
  #bottom = true;
  #anchor: Anchor | null = null;

  /** Changed is called when another piece of the log is to be drawn, or the reader comes to the bottom or leaves it. */
  constructor(conversation: Conversation, changed: () => void) {
    this.#conversation = conversation;
    this.#changed = changed;
  }

  /** Whether the newest messages are in sight. */
  get bottom(): boolean {
    return this.#bottom;
  }

  /** Whether the end of what is loaded is laid out, and so what is not sent yet can be shown after it. */
  get tail(): boolean {
    return this.#pin === null;
  }

  /** Takes the scrolling element; the answer gives it back. */
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

  /** Says what to draw of the chunks. It is called before the document changes. */
  plan(chunks: readonly Chunk[]): Span {
    this.#anchor = this.#find();
    const pin = this.#pin;
    this.#chunks = pin === null ? chunks : chunks.filter((c) => c.index <= pin);
    this.#drawn = this.#wanted();
    return this.#drawn;
  }

  /** Is called after the document has changed: puts the reader back, and looks whether more is to be drawn or loaded. */
  planned(): void {
    const { row, top } = this.#anchor ?? {};
    if (this.#box && row?.isConnected && top !== undefined) {
      const moved = row.getBoundingClientRect().top - top;
      if (Math.abs(moved) >= 1) this.#box.scrollTop += moved;
    }
    this.settle();
  }

  /** Measures, and has another piece drawn and more loaded where the reader comes near an end. */
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

  /** Goes to the newest message, and loads it where it is not. */
  toBottom(): void {
    this.#pin = null;
    this.#anchor = null;
    if (this.#box) this.#box.scrollTop = 0;
    if (!this.#conversation.view.value.atEnd) void this.#conversation.loadNewest();
    this.#changed();
  }

  /** Goes to the first message that is loaded; those before it are then loaded too. */
  toTop(): void {
    if (this.#box) this.#box.scrollTop = -this.#box.scrollHeight;
  }

  /** Brings an element, if it lies above what is seen, to the top of it. */
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
    // What is left of a pixel after putting a row back must not add up.
    return this.#anchor?.row === row && Math.abs(this.#anchor.top - top) < 1 ? this.#anchor : { row, top };
  }

  #resized(): void {
    const width = this.#box?.clientWidth ?? 0;
    if (width !== this.#width) this.#heights.reset();
    this.#width = width;
    this.settle();
  }
}
