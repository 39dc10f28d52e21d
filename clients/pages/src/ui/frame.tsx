import type { ComponentChildren } from "preact";
import type { Session, SignedInPage } from "../connection/session";
import { Avatar } from "./avatar";
import { ConnectionStatus } from "./connectionstatus";
import { Icon, type IconName } from "./icon";
import { userName } from "./name";
import { SignOutButton } from "./signout";
import { ThemeButton } from "./theme";

/** The pages, in the order of the navigation. Add a line for a new page. */
const pages = [
  { id: "chat", name: "Chat", path: "/", icon: "bubbles" },
  { id: "assistant", name: "Assistant", path: "/assistant", icon: "spark" },
  { id: "queues", name: "Queues", path: "/queues", icon: "queues" },
] as const satisfies readonly { id: string; name: string; path: string; icon: IconName }[];

export type PageId = (typeof pages)[number]["id"];

/**
 * Frame is the layout of every page: a sidebar, and beside it the pane with the content. A phone
 * shows only one of them: the pane if open is set, otherwise the sidebar.
 */
export function Frame({ page, open, children }: { page: PageId; open: boolean; children: ComponentChildren }) {
  // A link would replace the fragment, which is the route.
  return (
    <div class={`page ${page}`} data-open={open}>
      <button
        type="button"
        class="skip"
        data-testid="skip"
        onClick={() => document.querySelector<HTMLElement>("main.pane")?.focus()}
      >
        Skip to the content
      </button>
      {children}
    </div>
  );
}

/** Sidebar shows the user, the connection, the links to the pages, and the page's own list. */
export function Sidebar(props: {
  page: PageId;
  label: string;
  session: Session<SignedInPage>;
  children: ComponentChildren;
}) {
  const { page, label, session, children } = props;
  const { user } = session;
  const connection = session.page?.connection;
  return (
    <div class="sidebar">
      <header class="sidebar-head">
        <Avatar user={user} />
        <span class="me">
          <b dir="auto" title={user} data-testid="me">
            {userName(user)}
          </b>
          {connection && <ConnectionStatus connection={connection} />}
        </span>
        <ThemeButton />
        <SignOutButton session={session} />
      </header>
      <nav class="tabs page-tabs" aria-label="Pages">
        {pages.map(({ id, name, path, icon }) => (
          <a key={id} href={path} data-testid={`to-${id}`} aria-current={id === page ? "page" : undefined}>
            <Icon name={icon} />
            {name}
          </a>
        ))}
      </nav>
      <nav class="sidebar-list" aria-label={label}>
        {children}
      </nav>
    </div>
  );
}

/** Pane is the part of a page beside the sidebar. */
export function Pane({ children }: { children: ComponentChildren }) {
  return (
    <main class="pane" tabIndex={-1}>
      {children}
    </main>
  );
}

/** PaneHead is the pane's title line. On a phone it has a button back to the sidebar. */
export function PaneHead(props: {
  title: ComponentChildren;
  back?: { label: string; act: () => void };
  children?: ComponentChildren;
}) {
  const { title, back, children } = props;
  return (
    <header class="pane-head">
      {back && (
        <button type="button" class="icon-button back" data-testid="back" aria-label={back.label} onClick={back.act}>
          <Icon name="back" />
        </button>
      )}
      <h1 data-testid="title">{title}</h1>
      {children}
    </header>
  );
}
