import { useMemo } from "preact/hooks";
import { ConnectionState } from "../../ui/connection";
import { Icon } from "../../ui/icon";
import { ThemeButton } from "../../ui/theme";
import type { Board, TopicView } from "../model/board";
import { brief } from "../model/format";
import { lag, sum } from "../model/types";
import { placeFragment } from "../place";
import { place, user } from "../session";
import { ask } from "./dialogs";
import { PausedMark } from "./paused";

/** The list of topics, with the way back to the chat page. */
export function Side({ board }: { board: Board }) {
  const topics = board.topics.value;
  const { topic, view } = place.value;
  return (
    <nav class="sidebar" aria-label="Topics">
      <header class="sidebar-head">
        <span class="me">
          <b>Queues</b>
          <ConnectionState connection={board.connection} />
        </span>
        <a class="icon-button" href="/" data-testid="to-chat" aria-label="Chat" title="Chat">
          <Icon name="bubbles" />
        </a>
        <ThemeButton />
      </header>
      <div class="side-tools">
        <a
          class="side-all"
          href={placeFragment({ topic: null, view })}
          aria-current={topic === null ? "page" : undefined}
        >
          All topics
        </a>
        <button type="button" class="small" data-testid="new-topic" onClick={() => ask({ kind: "topic" })}>
          <Icon name="plus" /> Topic
        </button>
      </div>
      <ul class="channel-list" data-testid="topic-list">
        {topics.map((one) => (
          <Row key={one.topic.name} view={one} open={one.topic.name === topic} />
        ))}
        {topics.length === 0 && board.loaded.value && <li class="list-empty">No topics yet.</li>}
      </ul>
      <p class="side-foot">
        as <b dir="auto">{user.value}</b>
      </p>
    </nav>
  );
}

function Row({ view, open }: { view: TopicView; open: boolean }) {
  return useMemo(() => {
    const { topic, stats } = view;
    const groups = stats?.total.groups ?? [];
    const dead = stats?.total.deadLetters ?? 0;
    const words = !stats
      ? "\u00a0"
      : groups.length === 0
        ? `${brief(stats.total.length)} stored, no group`
        : `${brief(sum(groups, lag))} behind · ${brief(sum(groups, (g) => g.consumers))} consuming`;
    return (
      <li>
        <a
          class="channel"
          data-testid={`topic-${topic.name}`}
          href={placeFragment({ topic: topic.name, view: "overview" })}
          aria-current={open ? "true" : undefined}
          title={topic.name}
        >
          <span class="channel-name">{topic.name}</span>
          <PausedMark topic={topic} />
          <span class="preview">{words}</span>
          {dead > 0 && (
            <span class="badge dead-badge">
              {brief(dead)}
              <span class="hidden"> dead letters</span>
            </span>
          )}
        </a>
      </li>
    );
  }, [view, open]);
}
