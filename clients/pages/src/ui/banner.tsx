import type { ComponentChildren } from "preact";

/**
 * Banner is a message across the top of the pane: `warn` for a temporary problem or a question to
 * the user, `bad` for a problem that prevents the page from working. With float it covers the
 * bottom of the pane instead, so that showing and hiding it moves no content.
 */
export function Banner(props: {
  kind: "warn" | "bad";
  testid: string;
  alert?: boolean;
  float?: boolean;
  children: ComponentChildren;
  actions?: ComponentChildren;
}) {
  const { kind, testid, alert = false, float = false, children, actions } = props;
  return (
    <div class={`banner ${kind}${float ? " float" : ""}`} role={alert ? "alert" : undefined} data-testid={testid}>
      <div class="banner-text">{children}</div>
      {actions && <div class="banner-actions">{actions}</div>}
    </div>
  );
}

/** LinkButton is a button that looks like a link, for an action in a text or a banner. */
export function LinkButton({
  testid,
  act,
  children,
}: {
  testid?: string;
  act: () => void;
  children: ComponentChildren;
}) {
  return (
    <button type="button" class="link" data-testid={testid} onClick={act}>
      {children}
    </button>
  );
}
