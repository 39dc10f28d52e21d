import { Empty } from "../../ui/empty";
import { count, perSecond } from "../../ui/format";
import { PaneHead } from "../../ui/frame";
import { type Column, Table } from "../../ui/table";
import type { Board, TopicView } from "../model/board";
import { type GroupCounts, lag, sum } from "../model/types";
import { routeFragment } from "../route";
import { openDialog } from "./dialogs";
import { PausedMark } from "./paused";

/** Overview shows all topics with their numbers. */
export function Overview({ board }: { board: Board }) {
  const topics = board.topics.value;
  return (
    <>
      <PaneHead title="All topics" />
      <div class="pane-body">
        {topics.length > 0 ? <Topics topics={topics} /> : board.loaded.value ? <NoTopics /> : <Waiting />}
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
      Producers append messages to a topic. Each consumer group reads them at its own pace.
    </Empty>
  );
}

const columns: readonly Column[] = [
  { name: "Depth", title: "Messages in the topic, settled or not" },
  { name: "Unread", title: "Never delivered, in all groups" },
  { name: "Pending", title: "Delivered and not settled" },
  { name: "Retrying", title: "Waiting for the next attempt" },
  { name: "Delayed", title: "Scheduled, and not due yet" },
  { name: "Dead", title: "Dead letters" },
  { name: "In", title: "Produced per second" },
  { name: "Out", title: "Acknowledged per second, by all groups" },
  { name: "Consumers", title: "Connected, in all groups" },
];

function Topics({ topics }: { topics: readonly TopicView[] }) {
  return (
    <Table testid="topics" rows="Topic" columns={columns}>
      {topics.map((view) => (
        <Row key={view.topic.name} view={view} />
      ))}
    </Table>
  );
}

function Row({ view }: { view: TopicView }) {
  const { topic, stats, produced, acked } = view;
  const total = stats?.total;
  const of = (pick: (group: GroupCounts) => number) => (total ? count(sum(total.groups, pick)) : "–");
  const dead = total?.deadLetters ?? 0;
  return (
    <tr data-testid={`row-${topic.name}`} data-lag={total ? sum(total.groups, lag) : undefined}>
      <th scope="row" class="name">
        <a href={routeFragment({ topic: topic.name, view: "overview" })} title={topic.name}>
          {topic.name}
        </a>{" "}
        <PausedMark topic={topic} />
      </th>
      <td class="number">{total ? count(total.length) : "–"}</td>
      <td class="number">{of((g) => g.unread)}</td>
      <td class="number">{of((g) => g.pending)}</td>
      <td class="number">{of((g) => g.retrying + g.parked)}</td>
      <td class="number">{total ? count(total.delayed) : "–"}</td>
      <td class="number">
        {dead > 0 ? (
          <a class="dead" href={routeFragment({ topic: topic.name, view: "dead" })}>
            {count(dead)}
          </a>
        ) : total ? (
          0
        ) : (
          "–"
        )}
      </td>
      <td class="number">{perSecond(produced)}</td>
      <td class="number">{perSecond(acked)}</td>
      <td class="number">{of((g) => g.consumers)}</td>
    </tr>
  );
}
