import type { ComponentChildren } from "preact";

/**
 * Banner is a message across the top of the pane: `warn` for something that passes or that the user decides about,
 * `bad` for something that keeps the page from working. With float it lies over the bottom of the pane instead, and so
 * moves nothing when it comes and goes.
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

/** LinkButton is a button that looks like a link, for an action within a text or a banner. */
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
