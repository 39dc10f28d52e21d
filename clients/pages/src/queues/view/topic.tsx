import { useSignal } from "@preact/signals";
import { failure } from "../../connection/failure";
import { count, perSecond } from "../../ui/format";
import { PaneHead } from "../../ui/frame";
import { Icon } from "../../ui/icon";
import type { Board, TopicView } from "../model/board";
import { type GroupCounts, type Operation, sum } from "../model/types";
import { routeFragment, type View } from "../route";
import { go } from "../session";
import { openDialog } from "./dialogs";
import { LettersPart } from "./letters";
import { OverTime } from "./overtime";
import { PartitionsPart } from "./partitions";
import { PausedMark } from "./paused";
import { PendingPart } from "./pending";

/** TopicPane shows a topic: its numbers and one of its parts. */
export function TopicPane({ board, view, part }: { board: Board; view: TopicView; part: View }) {
  const { topic } = view;
  return (
    <>
      <PaneHead
        title={topic.name}
        back={{ label: "Back to the topics", act: () => go({ topic: null, view: "overview" }) }}
      >
        <PausedMark topic={topic} />
        <Controls board={board} view={view} />
      </PaneHead>
      <div class="pane-body">
        <Tiles view={view} />
        <Parts view={view} part={part} />
        <Part board={board} view={view} part={part} />
        <Settings view={view} />
      </div>
    </>
  );
}

function Part({ board, view, part }: { board: Board; view: TopicView; part: View }) {
  const group = useSignal("");
  const groups = view.topic.groups;
  // The chosen group while it exists, otherwise the first one.
  const known = groups.includes(group.value) ? group.value : (groups[0] ?? "");
  const choose = (name: string) => {
    group.value = name;
  };
  switch (part) {
    case "overview":
      return <OverTime view={view} />;
    case "partitions":
      return <PartitionsPart board={board} view={view} group={known} choose={choose} />;
    case "pending":
      return <PendingPart board={board} view={view} group={known} choose={choose} />;
    case "dead":
      return <LettersPart board={board} view={view} />;
  }
}

function Controls({ board, view }: { board: Board; view: TopicView }) {
  const { topic } = view;
  const busy = useSignal(false);
  const paused: Operation[] = [];
  if (topic.producePaused) paused.push("produce");
  if (topic.consumePaused) paused.push("consume");
  const resume = async () => {
    busy.value = true;
    try {
      await board.call((signal) => board.client.resume(topic.name, paused, signal));
    } catch (cause) {
      openDialog({ kind: "problem", text: failure(cause).text });
    } finally {
      busy.value = false;
      board.wake();
    }
  };
  return (
    <span class="controls">
      <button
        type="button"
        class="small"
        data-testid="new-group"
        onClick={() => openDialog({ kind: "group", topic: topic.name })}
      >
        <Icon name="plus" /> Group
      </button>
      {paused.length > 0 ? (
        <button type="button" class="small primary" data-testid="resume" disabled={busy} onClick={() => void resume()}>
          Resume
        </button>
      ) : (
        <button
          type="button"
          class="small"
          data-testid="pause"
          onClick={() => openDialog({ kind: "pause", topic: topic.name })}
        >
          Pause…
        </button>
      )}
    </span>
  );
}

function Tiles({ view }: { view: TopicView }) {
  const { stats, produced, acked } = view;
  const total = stats?.total;
  const of = (pick: (group: GroupCounts) => number) => (total ? count(sum(total.groups, pick)) : "–");
  const tiles: [string, string, string][] = [
    ["depth", "Depth", total ? count(total.length) : "–"],
    ["unread", "Unread", of((g) => g.unread)],
    ["pending", "Pending", of((g) => g.pending)],
    ["retrying", "Retrying", of((g) => g.retrying + g.parked)],
    ["delayed", "Delayed", total ? count(total.delayed) : "–"],
    ["dead", "Dead", total ? count(total.deadLetters) : "–"],
    ["in", "In", perSecond(produced)],
    ["out", "Out", perSecond(acked)],
    ["consumers", "Consumers", of((g) => g.consumers)],
  ];
  return (
    <dl class="tiles">
      {tiles.map(([id, name, value]) => (
        <div key={id} class="tile" data-bad={id === "dead" && (total?.deadLetters ?? 0) > 0}>
          <dt>{name}</dt>
          <dd data-testid={`tile-${id}`}>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Parts({ view, part }: { view: TopicView; part: View }) {
  const topic = view.topic.name;
  const dead = view.stats?.total.deadLetters ?? 0;
  const names: [View, string][] = [
    ["overview", "Over time"],
    ["partitions", "Partitions"],
    ["pending", "Pending"],
    ["dead", dead > 0 ? `Dead letters ${count(dead)}` : "Dead letters"],
  ];
  return (
    <nav class="tabs" aria-label="Parts of the topic">
      {names.map(([id, name]) => (
        <a
          key={id}
          href={routeFragment({ topic, view: id })}
          data-testid={`part-${id}`}
          aria-current={id === part ? "page" : undefined}
        >
          {name}
        </a>
      ))}
    </nav>
  );
}

function Settings({ view }: { view: TopicView }) {
  const { partitions, partitioner, strictOrder, maxAttempts, maxMessages, dropOldest } = view.topic;
  const facts = [
    `${partitions} ${partitions === 1 ? "partition" : "partitions"}`,
    partitioner && `by ${partitioner}`,
    strictOrder && "strict order",
    maxAttempts > 0 && `${maxAttempts} attempts`,
    maxMessages > 0 && `at most ${count(maxMessages)} per partition${dropOldest ? ", drops the oldest" : ""}`,
    `${count(view.stats?.total.produced ?? 0)} produced in total`,
  ];
  return <p class="quiet settings">{facts.filter(Boolean).join(" · ")}</p>;
}
