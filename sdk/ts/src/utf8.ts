const encoder = new TextEncoder();
// Without ignoreBOM, the decoder would remove a U+FEFF at the start of each piece.
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** width returns the bytes in UTF-8 of the code point that begins at index i of a string. */
function width(text: string, i: number): 1 | 2 | 3 | 4 {
  const code = text.codePointAt(i) ?? 0;
  if (code < 0x80) {
    return 1;
  }
  if (code < 0x800) {
    return 2;
  }
  return code < 0x10000 ? 3 : 4;
}

/** byteLength returns the number of bytes of a text in UTF-8. A lone surrogate counts as 3. */
export function byteLength(text: string): number {
  let bytes = 0;
  for (let i = 0; i < text.length; i++) {
    const w = width(text, i);
    bytes += w;
    i += w === 4 ? 1 : 0; // a surrogate pair
  }
  return bytes;
}

/**
 * firstBytes returns the beginning of a text that has the given number of bytes in UTF-8. It
 * returns undefined if the text is shorter, or has no boundary of code points there.
 */
export function firstBytes(text: string, bytes: number): string | undefined {
  let left = bytes;
  let i = 0;
  while (left > 0 && i < text.length) {
    const w = width(text, i);
    left -= w;
    i += w === 4 ? 2 : 1;
  }
  return left === 0 ? text.slice(0, i) : undefined;
}

/** Piece is a part of a text: `bytes` bytes of UTF-8 from the byte `offset` on. */
export interface Piece {
  offset: number;
  bytes: number;
  text: string;
}

/** GrowingText is a text that grows at its end and is read by the offsets of its bytes in UTF-8. */
export class GrowingText {
  /** The number of bytes. */
  length = 0;
  #bytes = new Uint8Array(1_024);

  /** append adds well-formed text. */
  append(text: string): void {
    const added = encoder.encode(text);
    const length = this.length + added.length;
    if (length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(length, 2 * this.#bytes.length));
      larger.set(this.#bytes);
      this.#bytes = larger;
    }
    this.#bytes.set(added, this.length);
    this.length = length;
  }

  /**
   * piece returns up to max bytes from an offset on. Both ends are moved back to a boundary of code
   * points. max is at least 4.
   */
  piece(offset: number, max: number): Piece {
    const from = this.#boundary(offset);
    const to = this.#boundary(from + max);
    return { offset: from, bytes: to - from, text: decoder.decode(this.#bytes.subarray(from, to)) };
  }

  toString(): string {
    return decoder.decode(this.#bytes.subarray(0, this.length));
  }

  #boundary(offset: number): number {
    let at = Math.min(Math.max(offset, 0), this.length);
    // Bytes 10xxxxxx continue a code point.
    while (at > 0 && at < this.length && ((this.#bytes[at] ?? 0) & 0xc0) === 0x80) {
      at--;
    }
    return at;
  }
}
