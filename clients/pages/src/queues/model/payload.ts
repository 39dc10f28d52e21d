/** How much of a payload is shown before one asks for more, in bytes. */
export const previewBytes = 4_096;

/** A payload for people. */
export interface Preview {
  kind: "empty" | "text" | "hex";
  text: string;
  /** Whether there is more than was shown. */
  cut: boolean;
}

/** Shows the first bytes of a payload: as text if all of it is text, else as a hex dump. */
export function preview(payload: Uint8Array, limit = previewBytes): Preview {
  if (payload.length === 0) return { kind: "empty", text: "", cut: false };
  const cut = payload.length > limit;
  const whole = decoded(payload);
  if (whole === null) return { kind: "hex", text: hexDump(payload.subarray(0, limit)), cut };
  const text = cut ? new TextDecoder().decode(payload.subarray(0, limit)).replace(/\ufffd+$/, "") : whole;
  return { kind: "text", text, cut };
}

/** A payload in one line of at most so many characters. */
export function oneLine(payload: Uint8Array, limit = 160): string {
  if (payload.length === 0) return "empty";
  if (decoded(payload) === null) {
    const bytes = [...payload.subarray(0, Math.floor(limit / 3))].map(hex).join(" ");
    return payload.length * 3 > limit ? `${bytes} …` : bytes;
  }
  const text = preview(payload, 4 * limit)
    .text.replace(/\s+/g, " ")
    .trim();
  const characters = [...text];
  return characters.length > limit ? `${characters.slice(0, limit).join("")}…` : text;
}

/** Bytes as offset, hex and printable characters, 16 a line. */
export function hexDump(bytes: Uint8Array): string {
  const lines: string[] = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const seen = row.map((b) => (b >= 0x20 && b < 0x7f ? String.fromCharCode(b) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${row.map(hex).join(" ").padEnd(47)}  ${seen}`);
  }
  return lines.join("\n");
}

function hex(byte: number): string {
  return byte.toString(16).padStart(2, "0");
}

// Null where it is no text: not UTF-8, or with control characters that no text has.
function decoded(payload: Uint8Array): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(payload);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
    return /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}
