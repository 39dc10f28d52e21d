import { useEffect, useState } from "preact/hooks";
import { Icon } from "./icon";

/**
 * copyText puts a text on the clipboard, and reports whether the browser did. Outside of a secure
 * context it has no clipboard for scripts; there the text is copied from a field.
 */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyFromField(text);
  }
}

function copyFromField(text: string): boolean {
  const focused = document.activeElement;
  const field = document.createElement("textarea");
  field.value = text;
  field.className = "hidden";
  document.body.append(field);
  field.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    field.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}

/** The time for which a button shows that it copied, in milliseconds. */
const shownFor = 2_000;

/** CopyButton copies a text. label is what it copies, for example `Copy the answer`. */
export function CopyButton({ label, testid, text }: { label: string; testid: string; text: () => string }) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = setTimeout(() => setCopied(false), shownFor);
    return () => clearTimeout(timer);
  }, [copied]);
  return (
    <button
      type="button"
      class="icon-button"
      data-testid={testid}
      data-copied={copied}
      aria-label={copied ? "Copied" : label}
      title={copied ? "Copied" : label}
      onClick={() => void copyText(text()).then(setCopied)}
    >
      <Icon name={copied ? "check" : "copy"} />
    </button>
  );
}
