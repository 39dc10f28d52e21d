import { useRef, useState } from "preact/hooks";
import { signIn } from "../session";
import { Icon } from "./icon";

/** Asks for a token, and says why. Welcome makes it fill an otherwise empty page. */
export function TokenForm({ reason, welcome = false }: { reason: string; welcome?: boolean }) {
  const input = useRef<HTMLInputElement>(null);
  const [wrong, setWrong] = useState("");
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const token = input.current?.value.trim() ?? "";
    setWrong(signIn(token) ? "" : "That is not a token: it names no user.");
    if (wrong) input.current?.focus();
  };
  const shown = wrong || reason;
  return (
    <form class="token-form" data-testid="token-form" onSubmit={submit}>
      {welcome && (
        <>
          <div class="welcome-mark">
            <Icon name="bubbles" />
          </div>
          <h1>Welcome to Parley</h1>
          <p>
            Paste the token that your server gave you. <code>parleyd dev</code> prints one, and an address that holds
            it.
          </p>
        </>
      )}
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
          {welcome ? "Enter" : "Use it"}
        </button>
      </div>
    </form>
  );
}
