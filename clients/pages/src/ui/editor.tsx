import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { bytes, fit, sends } from "./field";

/** EditorProps are those of TextEditor. */
interface EditorProps {
  /** The text at the beginning. */
  content: string;
  /** The size of the largest text that can be saved, in bytes of UTF-8. */
  maxBytes: number;
  /** The text of the button that saves, and of the button while that lasts. */
  action: string;
  busy: string;
  /** Saves a text. It closes the editor if it has. */
  save: (text: string) => Promise<void>;
  cancel: () => void;
  /** Takes a key that neither saves nor cancels, while nothing is being saved. */
  onKey?: (event: KeyboardEvent, text: string) => void;
  /** More buttons. */
  children?: ComponentChildren;
}

/** TextEditor edits the text of a message in its place. It stays open until the text is saved. */
export function TextEditor({ content, maxBytes, action, busy, save, cancel, onKey, children }: EditorProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const [text, setText] = useState(content);
  const [saving, setSaving] = useState(false);
  const valid = text.trim() !== "" && bytes(text) <= maxBytes;
  useLayoutEffect(() => {
    const area = field.current;
    if (!area) return;
    fit(area);
    area.focus();
    area.setSelectionRange(area.value.length, area.value.length);
    area.scrollIntoView({ block: "nearest" });
  }, []);
  const submit = async () => {
    if (!valid || saving) return;
    setSaving(true);
    await save(text);
    setSaving(false);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") {
      event.stopPropagation();
      cancel();
    } else if (sends(event)) {
      event.preventDefault();
      void submit();
    } else if (!saving) {
      onKey?.(event, text);
    }
  };
  return (
    <div class="editor">
      <textarea
        ref={field}
        data-testid="editor"
        aria-label="Edit the message"
        dir="auto"
        rows={1}
        value={text}
        readOnly={saving}
        onInput={(event) => {
          setText(event.currentTarget.value);
          fit(event.currentTarget);
        }}
        onKeyDown={onKeyDown}
      />
      <div class="editor-buttons">
        <button
          type="button"
          class="primary"
          data-testid="save"
          disabled={!valid || saving}
          onClick={() => void submit()}
        >
          {saving ? busy : action}
        </button>
        <button type="button" data-testid="cancel" onClick={cancel}>
          Cancel
        </button>
        {children}
      </div>
    </div>
  );
}
