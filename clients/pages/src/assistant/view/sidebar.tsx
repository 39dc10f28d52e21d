import { useMemo } from "preact/hooks";
import { briefly } from "../../ui/format";
import { Sidebar } from "../../ui/frame";
import { Icon } from "../../ui/icon";
import { Rows } from "../../ui/rows";
import type { Assistant } from "../model/assistant";
import type { SessionView } from "../model/sessions";
import { go, route, session } from "../session";

/** SessionList shows the conversations, with a button for a new one. */
export function SessionList({ assistant }: { assistant: Assistant }) {
  const list = assistant.sessions.list.value;
  const open = route.value.show === "session" ? route.value.id : undefined;
  return (
    <Sidebar page="assistant" label="Conversations" session={session}>
      <div class="side-new">
        <button
          type="button"
          data-testid="new-session"
          aria-current={route.value.show === "new" ? "true" : undefined}
          onClick={() => go({ show: "new" })}
        >
          <Icon name="plus" /> New conversation
        </button>
      </div>
      {list.length === 0 && assistant.listed.value && <p class="items-empty">No conversations yet.</p>}
      <Rows
        items={list}
        testid="session-list"
        label="Conversations"
        current={open}
        row={(view, tabIndex) => <Row view={view} open={view.id === open} tabIndex={tabIndex} />}
      />
    </Sidebar>
  );
}

function Row({ view, open, tabIndex }: { view: SessionView; open: boolean; tabIndex: 0 | -1 }) {
  return useMemo(() => {
    const { id, title, activeTime, unread, answering } = view;
    return (
      <button
        type="button"
        class="item"
        data-testid={`session-${id}`}
        data-unread={unread > 0 && !open}
        aria-current={open ? "true" : undefined}
        title={title || "Untitled"}
        tabIndex={tabIndex}
        onClick={() => go({ show: "session", id })}
      >
        <span class="item-name" dir="auto">
          {title || "Untitled"}
        </span>
        {unread > 0 && !open && (
          <span class="badge">
            <span data-testid={`unread-${id}`}>{unread > 999 ? "999+" : unread}</span>
            <span class="hidden"> unread</span>
          </span>
        )}
        <span class="item-note">
          {answering ? (
            "answering…"
          ) : (
            <time dateTime={activeTime.toISOString()}>{briefly(activeTime, new Date())}</time>
          )}
        </span>
      </button>
    );
  }, [view, open, tabIndex]);
}
