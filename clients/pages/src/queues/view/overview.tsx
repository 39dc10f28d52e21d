import { Icon } from "../../ui/icon";
import { TableHead } from "../../ui/tablehead";
import type { Board, TopicView } from "../model/board";
import { count, perSecond } from "../model/format";
import { type GroupCounts, lag, sum } from "../model/types";
import { placeFragment } from "../place";
import { ask } from "./dialogs";
import { PausedMark } from "./paused";

/** All topics with their numbers. */
export function Overview({ board }: { board: Board }) {
  const topics = board.topics.value;
  return (
    <>
      <header class="pane-head">
        <h1 data-testid="title">All topics</h1>
      </header>
      <div class="pane-body">
        {topics.length > 0 ? <Table topics={topics} /> : board.loaded.value ? <NoTopics /> : <Waiting />}
      </div>
    </>
  );
}

function Waiting() {
  return <p class="quiet">Asking the server…</p>;
}

function NoTopics() {
  return (
    <div class="nothing" data-testid="no-topics">
      <div class="welcome-mark">
        <Icon name="queues" />
      </div>
      <h1>No topics yet</h1>
      <p>A topic takes messages in; consumer groups take them out, each at its own pace.</p>
      <button type="button" class="primary" onClick={() => ask({ kind: "topic" })}>
        Create the first one
      </button>
    </div>
  );
}

const head: [string, string][] = [
  ["Depth", "Messages that are in the topic, settled or not"],
  ["Unread", "Never delivered, of all groups"],
  ["Pending", "Delivered and not settled"],
  ["Retrying", "Waiting for their next attempt"],
  ["Delayed", "Scheduled, and not due yet"],
  ["Dead", "Dead letters"],
  ["In", "Produced per second"],
  ["Out", "Acknowledged per second, by all groups"],
  ["Consumers", "Connected, of all groups"],
];

function Table({ topics }: { topics: readonly TopicView[] }) {
  return (
    <div class="table-box">
      <table data-testid="topics">
        <TableHead rows="Topic" columns={head} />
        <tbody>
          {topics.map((view) => (
            <Row key={view.topic.name} view={view} />
          ))}
        </tbody>
      </table>
    </div>
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
        <a href={placeFragment({ topic: topic.name, view: "overview" })} title={topic.name}>
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
          <a class="dead" href={placeFragment({ topic: topic.name, view: "dead" })}>
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
