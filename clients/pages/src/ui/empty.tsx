import type { ComponentChildren } from "preact";
import { type IconName, Mark } from "./icon";

/**
 * Empty fills a pane that has nothing to show. It says what is missing and what the user can do.
 */
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

/**
 * ErrorText shows why an operation on a part of the page failed. It shows nothing for an empty
 * text.
 */
export function ErrorText({ text }: { text: string }) {
  return text ? (
    <p class="problem" role="alert">
      {text}
    </p>
  ) : null;
}
