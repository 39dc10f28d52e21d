import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { invalidToken, type Session } from "../connection/session";
import { type IconName, Mark } from "./icon";

/**
 * TokenForm asks for a token. reason is a text to show, such as why the last token was refused;
 * empty shows none. enter signs in and reports whether the entered text is a token.
 */
export function TokenForm(props: {
  reason: string;
  enter: (token: string) => boolean;
  submit?: string;
  children?: ComponentChildren;
}) {
  const { reason, enter, submit = "Use token", children } = props;
  const input = useRef<HTMLInputElement>(null);
  const [wrong, setWrong] = useState(false);
  const onSubmit = (event: SubmitEvent) => {
    event.preventDefault();
    const taken = enter(input.current?.value.trim() ?? "");
    setWrong(!taken);
    if (!taken) input.current?.focus();
  };
  const shown = wrong ? invalidToken : reason;
  return (
    <form class="token-form" data-testid="token-form" onSubmit={onSubmit}>
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
          class="field"
          ref={input}
          data-testid="token-input"
          type="password"
          autocomplete="off"
          spellcheck={false}
          required
        />
        <button type="submit" class="primary">
          {submit}
        </button>
      </div>
    </form>
  );
}

/**
 * Welcome fills the page while no user is signed in, and asks for a token. While the page opens, or
 * asks other tabs for a token, it shows nothing.
 */
export function Welcome(props: {
  session: Session<{ close(): void }>;
  icon: IconName;
  title: string;
  children: ComponentChildren;
}) {
  const { session, icon, title, children } = props;
  if (session.state.value.state !== "signed_out") return null;
  return (
    <main class="empty welcome">
      <TokenForm reason={session.refusal.value} enter={(token) => session.signIn(token)} submit="Enter">
        <Mark icon={icon} />
        <h1>{title}</h1>
        <p>{children}</p>
      </TokenForm>
    </main>
  );
}
