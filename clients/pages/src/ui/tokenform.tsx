import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { invalidToken, type Session, type SignedInPage } from "../connection/session";
import { type IconName, Mark } from "./icon";

/**
 * TokenForm asks for a token. reason is a text to show, such as why the last token was refused;
 * empty shows none. enter signs in and reports whether the entered text is a token.
 */
export function TokenForm(props: {
  reason: string;
  enter: (token: string) => boolean;
  submit?: string;
  /** True if the text field gets the focus when the form appears. */
  focus?: boolean;
  children?: ComponentChildren;
}) {
  const { reason, enter, submit = "Use token", focus = false, children } = props;
  const input = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => {
    if (focus) input.current?.focus();
  }, [focus]);
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
 * Welcome fills the page while no user is signed in, and asks for a token. After a sign-out, in
 * this tab or elsewhere, it says so. While the page opens, or asks other tabs for a token, it shows
 * nothing.
 */
export function Welcome(props: {
  session: Session<SignedInPage>;
  icon: IconName;
  title: string;
  children: ComponentChildren;
}) {
  const { session, icon, title, children } = props;
  const now = session.state.value;
  if (now.state !== "signed_out") return null;
  const { left } = now;
  return (
    <main class="empty welcome">
      <TokenForm
        key={left}
        reason={session.refusal.value}
        enter={(token) => session.signIn(token)}
        submit={left ? "Sign in" : "Enter"}
        focus={left}
      >
        <Mark icon={icon} />
        <h1>{left ? "You are signed out" : title}</h1>
        {left && (
          <p role="status" data-testid="signed-out">
            Your token no longer works. To sign in again, paste another one.
          </p>
        )}
        {!left && <p>{children}</p>}
      </TokenForm>
    </main>
  );
}
