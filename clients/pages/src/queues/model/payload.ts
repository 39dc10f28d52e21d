/** previewBytes is the number of bytes of a payload that are shown at first. */
export const previewBytes = 4_096;

/** Preview is a payload in a readable form. */
export interface Preview {
  kind: "empty" | "text" | "hex";
  text: string;
  /** True if the text shows only the first bytes of the payload. */
  cut: boolean;
}

/**
 * preview formats the first bytes of a payload: as text if the whole payload is text, otherwise as
 * a hex dump.
 */
export function preview(payload: Uint8Array, limit = previewBytes): Preview {
  if (payload.length === 0) return { kind: "empty", text: "", cut: false };
  const cut = payload.length > limit;
  const whole = decoded(payload);
  if (whole === null) return { kind: "hex", text: hexDump(payload.subarray(0, limit)), cut };
  const text = cut ? new TextDecoder().decode(payload.subarray(0, limit)).replace(/\ufffd+$/, "") : whole;
  return { kind: "text", text, cut };
}

/** oneLine formats a payload in one line of about limit characters. */
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

/** hexDump formats bytes as lines of 16, each with offset, hex and printable characters. */
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

// decoded returns the payload as text. It returns null if the payload is not UTF-8 or contains
// control characters that do not occur in text.
function decoded(payload: Uint8Array): string | null {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(payload);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: the expression searches for them
    return /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/.test(text) ? null : text;
  } catch {
    return null;
  }
}
