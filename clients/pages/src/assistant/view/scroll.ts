const bottomWithin = 24; // pixels
const topWithin = 200; // pixels from the top at which older messages are loaded

/**
 * Scroll keeps a growing log in place. A reader at the bottom stays there, and for one above it
 * messages that are inserted at the top move nothing.
 */
export class Scroll {
  readonly #changed: () => void;
  #box: HTMLElement | null = null;
  #bottom = true;
  #first: string | undefined;
  #height = 0;
  #top = 0;

  /** changed is called when the reader reaches or leaves the bottom. */
  constructor(changed: () => void) {
    this.#changed = changed;
  }

  /** True if the newest messages are visible. */
  get bottom(): boolean {
    return this.#bottom;
  }

  /**
   * Attaches the scrolling element, whose only child grows. older is called when the reader comes
   * near the top. The returned function detaches it.
   */
  attach(box: HTMLElement, older: () => void): () => void {
    this.#box = box;
    const sized = new ResizeObserver(() => this.#settle());
    sized.observe(box);
    if (box.firstElementChild) sized.observe(box.firstElementChild);
    const scrolled = () => {
      const bottom = box.scrollHeight - box.clientHeight - box.scrollTop <= bottomWithin;
      // Content that grew is not a reader who scrolled up.
      const left = this.#bottom && !bottom && box.scrollTop < this.#top;
      this.#top = box.scrollTop;
      if (left || (bottom && !this.#bottom)) {
        this.#bottom = bottom;
        this.#changed();
      }
      if (box.scrollTop < topWithin) older();
    };
    box.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      sized.disconnect();
      box.removeEventListener("scroll", scrolled);
      this.#box = null;
    };
  }

  /** Call it after each change of the content. first identifies the first message. */
  drawn(first: string | undefined): void {
    const box = this.#box;
    if (!box) return;
    const inserted = first !== this.#first && this.#first !== undefined && !this.#bottom;
    if (inserted) box.scrollTop += box.scrollHeight - this.#height;
    this.#first = first;
    this.#settle();
  }

  toBottom(): void {
    if (!this.#box) return;
    const was = this.#bottom;
    this.#bottom = true;
    this.#settle();
    if (!was) this.#changed();
  }

  toTop(): void {
    if (this.#box) this.#box.scrollTop = 0;
  }

  #settle(): void {
    const box = this.#box;
    if (!box) return;
    if (this.#bottom) box.scrollTop = box.scrollHeight;
    this.#height = box.scrollHeight;
    this.#top = box.scrollTop;
  }
}
