import { useMemo } from "preact/hooks";
import { brief } from "../../ui/format";
import { Sidebar } from "../../ui/frame";
import { Icon } from "../../ui/icon";
import type { Board, TopicView } from "../model/board";
import { backlog, sum } from "../model/types";
import { overview, routeFragment, routeTo } from "../route";
import { route, session } from "../session";
import { openDialog } from "./dialogs";
import { Filter, filtered } from "./filter";
import { PausedMark } from "./paused";

/** TopicList shows the list of topics. */
export function TopicList({ board }: { board: Board }) {
  const all = board.topics.value;
  const topics = filtered(all);
  const { topic } = route.value;
  return (
    <Sidebar page="queues" label="Topics" session={session}>
      <div class="side-tools">
        <a class="side-all" href={routeFragment(overview)} aria-current={topic === null ? "page" : undefined}>
          All topics
        </a>
        <button type="button" class="small" data-testid="new-topic" onClick={() => openDialog({ kind: "topic" })}>
          <Icon name="plus" /> Topic
        </button>
      </div>
      {all.length > 0 && (
        <div class="side-filter">
          <Filter />
        </div>
      )}
      <ul class="items" data-testid="topic-list">
        {topics.map((one) => (
          <Row key={one.topic.name} view={one} open={one.topic.name === topic} />
        ))}
        {topics.length === 0 && board.loaded.value && (
          <li class="items-empty">{all.length === 0 ? "No topics yet." : "No topic matches."}</li>
        )}
      </ul>
    </Sidebar>
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
        : `${brief(sum(groups, backlog))} to do · ${consumers(sum(groups, (g) => g.sessions))}`;
    return (
      <li>
        <a
          class="item"
          data-testid={`topic-${topic.name}`}
          href={routeFragment(routeTo(topic.name))}
          aria-current={open ? "true" : undefined}
          title={topic.name}
        >
          <span class="item-name">{topic.name}</span>
          <PausedMark paused={topic.paused} title="The topic accepts no messages" />
          <span class="item-note">{words}</span>
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

function consumers(n: number): string {
  return n === 1 ? "1 consumer" : `${brief(n)} consumers`;
}
