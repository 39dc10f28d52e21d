import { useSignal } from "@preact/signals";
import { Empty } from "../../ui/empty";
import { count, duration, perSecond } from "../../ui/format";
import { PaneHead } from "../../ui/frame";
import { type Column, Table } from "../../ui/table";
import type { Board, TopicView } from "../model/board";
import { backlog, type Counts, type GroupCounts, sum } from "../model/types";
import { routeFragment, routeTo } from "../route";
import { openDialog } from "./dialogs";
import { filtered } from "./filter";
import { PausedMark } from "./paused";

/** Overview shows all topics with their numbers. */
export function Overview({ board }: { board: Board }) {
  const topics = board.topics.value;
  return (
    <>
      <PaneHead title="All topics" />
      <div class="pane-body">
        {topics.length > 0 ? <Topics topics={filtered(topics)} /> : board.loaded.value ? <NoTopics /> : <Waiting />}
      </div>
    </>
  );
}

function Waiting() {
  return <p class="quiet">Loading…</p>;
}

function NoTopics() {
  const action = (
    <button type="button" class="primary" onClick={() => openDialog({ kind: "topic" })}>
      Create a topic
    </button>
  );
  return (
    <Empty icon="queues" testid="no-topics" title="No topics yet" action={action}>
      Producers append messages to a topic. Each consumer group handles all of them.
    </Empty>
  );
}

interface Shown extends Column {
  /** The number that a cell shows and by which the rows are sorted. Null if it is not known. */
  readonly value: (view: TopicView) => number | null;
  readonly write: (value: number | null) => string;
}

const whole = (value: number | null) => (value === null ? "–" : count(value));
const age = (value: number | null) => (value === null || value === 0 ? "–" : duration(value));

function groups(of: (group: GroupCounts) => number): (view: TopicView) => number | null {
  return ({ stats }) => (stats ? sum(stats.total.groups, of) : null);
}

function total(of: (counts: Counts) => number): (view: TopicView) => number | null {
  return ({ stats }) => (stats ? of(stats.total) : null);
}

const columns: readonly Shown[] = [
  { name: "Waiting", title: "Can be delivered, in all groups", value: groups((g) => g.waiting), write: whole },
  { name: "Running", title: "Held by consumers, in all groups", value: groups((g) => g.running), write: whole },
  { name: "Retrying", title: "Wait for the next attempt", value: groups((g) => g.retrying), write: whole },
  { name: "Scheduled", title: "Not due yet", value: total((c) => c.scheduled), write: whole },
  { name: "Dead", title: "Dead letters", value: total((c) => c.deadLetters), write: whole },
  { name: "Oldest", title: "Age of the oldest message that is not settled", value: total(oldest), write: age },
  { name: "In", title: "Produced per second", value: ({ produced }) => produced.value, write: perSecond },
  { name: "Out", title: "Acknowledged per second, by all groups", value: ({ acked }) => acked.value, write: perSecond },
  { name: "Consumers", title: "Sessions, in all groups", value: groups((g) => g.sessions), write: whole },
];

/** oldest returns the age of the oldest message that a group has not settled, in milliseconds. */
export function oldest({ groups }: Pick<Counts, "groups">): number {
  return Math.max(0, ...groups.map((g) => g.oldestAge));
}

function Topics({ topics }: { topics: readonly TopicView[] }) {
  const by = useSignal({ name: "Topic", down: false });
  const { name, down } = by.value;
  const value = columns.find((column) => column.name === name)?.value;
  const rows = [...topics];
  if (value) rows.sort((a, b) => (value(a) ?? -1) - (value(b) ?? -1));
  if (down) rows.reverse();
  const sort = (column: string) => {
    by.value = { name: column, down: column === name ? !down : column !== "Topic" };
  };
  if (rows.length === 0) return <p class="quiet">No topic matches the filter.</p>;
  return (
    <Table testid="topics" rows="Topic" columns={columns} sorted={{ ...by.value, sort }}>
      {rows.map((view) => (
        <Row key={view.topic.name} view={view} />
      ))}
    </Table>
  );
}

function Row({ view }: { view: TopicView }) {
  const { topic, stats } = view;
  return (
    <tr data-testid={`row-${topic.name}`} data-lag={stats ? sum(stats.total.groups, backlog) : undefined}>
      <th scope="row" class="name">
        <a href={routeFragment(routeTo(topic.name))} title={topic.name}>
          {topic.name}
        </a>{" "}
        <PausedMark paused={topic.paused} title="The topic accepts no messages" />
      </th>
      {columns.map(({ name, value, write }) => (
        <td key={name} class="number" data-column={name.toLowerCase()}>
          {name === "Dead" && (value(view) ?? 0) > 0 ? (
            <a class="dead" href={routeFragment(routeTo(topic.name, { view: "dead" }))}>
              {write(value(view))}
            </a>
          ) : (
            write(value(view))
          )}
        </td>
      ))}
    </tr>
  );
}
