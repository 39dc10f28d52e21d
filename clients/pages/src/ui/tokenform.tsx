import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";

/**
 * Asks for a token, and says why; enter takes it, or says that it is none. With children, which welcome the user, it fills
 * an otherwise empty page.
 */
export function TokenForm(props: { reason: string; enter: (token: string) => boolean; children?: ComponentChildren }) {
  const { reason, enter, children } = props;
  const input = useRef<HTMLInputElement>(null);
  const [wrong, setWrong] = useState("");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const token = input.current?.value.trim() ?? "";
    setWrong(enter(token) ? "" : "That is not a token: it names no user.");
    if (wrong) input.current?.focus();
  };
  const shown = wrong || reason;
  return (
    <form class="token-form" data-testid="token-form" onSubmit={submit}>
      {children}
      {shown && (
        <p class="token-reason" data-testid="token-reason" role="alert">
          {shown}
        </p>
      )}
      <label for="token">Token</label>
      <div class="token-row">
        <input
          id="token"
          ref={input}
          data-testid="token-input"
          type="password"
          autocomplete="off"
          spellcheck={false}
          required
        />
        <button type="submit" class="primary">
          {children ? "Enter" : "Use it"}
        </button>
      </div>
    </form>
  );
}
