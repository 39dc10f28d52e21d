import type { ComponentChildren } from "preact";
import { type IconName, Mark } from "./icon";

/** Empty fills the pane where there is nothing to show: what is missing, and what to do about it. */
export function Empty(props: {
  title: string;
  icon?: IconName;
  testid?: string;
  children: ComponentChildren;
  action?: ComponentChildren;
}) {
  const { title, icon, testid, children, action } = props;
  return (
    <div class="empty" data-testid={testid}>
      {icon && <Mark icon={icon} />}
      <h1>{title}</h1>
      <p>{children}</p>
      {action}
    </div>
  );
}

/** ErrorText is why a part of the page could not be loaded or done. It shows nothing for an empty text. */
export function ErrorText({ text }: { text: string }) {
  return text ? (
    <p class="problem" role="alert">
      {text}
    </p>
  ) : null;
}
