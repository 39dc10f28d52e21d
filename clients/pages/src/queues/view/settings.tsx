import { useSignal } from "@preact/signals";
import { count, dayAndTime } from "../../ui/format";
import type { Board, TopicView } from "../model/board";
import { writeDuration } from "../model/duration";
import type { Group, Order, Topic } from "../model/types";
import { overview } from "../route";
import { go } from "../session";
import { type Fact, Facts } from "./content";
import { openDialog } from "./dialogs";
import { PausedMark } from "./paused";

/** SettingsPart shows the settings of a topic and of its groups, and the operations on them. */
export function SettingsPart({ board, view }: { board: Board; view: TopicView }) {
  const { topic, stats } = view;
  const note = useSignal("");
  const done = (text: string) => {
    note.value = text;
  };
  return (
    <section class="part" aria-label="Settings">
      <section class="settings-card" data-testid="topic-settings">
        <h2>Topic</h2>
        <Facts facts={[...topicFacts(topic), ["Produced in total", count(stats?.total.produced ?? 0)]]} />
        <div class="job-actions">
          <button
            type="button"
            class="small"
            data-testid="edit-topic"
            onClick={() => openDialog({ kind: "edit-topic", topic })}
          >
            Edit…
          </button>
          <button
            type="button"
            class="small"
            data-testid="trim-topic"
            onClick={() => openDialog({ kind: "trim", topic: topic.name, done })}
          >
            Trim…
          </button>
          <span role="status" class="quiet" data-testid="settings-note">
            {note}
          </span>
          <button
            type="button"
            class="small danger apart"
            data-testid="delete-topic"
            onClick={() => openDialog(deletion(board, topic.name))}
          >
            Delete the topic…
          </button>
        </div>
      </section>
      {board.groups.value?.map((group) => (
        <GroupSettings key={group.name} board={board} topic={topic.name} group={group} />
      ))}
    </section>
  );
}

function deletion(board: Board, topic: string) {
  return {
    kind: "typed" as const,
    title: `Delete the topic ${topic}?`,
    text: "This deletes its messages, its groups and its dead letters forever.",
    name: topic,
    of: "topic" as const,
    yes: "Delete",
    act: async (typed: string) => {
      await board.change((signal) => board.client.deleteTopic(topic, typed, signal));
      go(overview);
    },
  };
}

function topicFacts(topic: Topic): Fact[] {
  const { partitions, partitioner, maxAge, keptMessages, deadLetterMaxAge, maxDeadLetters, maxMessages } = topic;
  const kept = keptMessages > 0 ? `, at most ${count(keptMessages)} per partition` : "";
  const dead = `${deadLetterMaxAge > 0 ? `for ${writeDuration(deadLetterMaxAge)}` : "forever"}, at most ${
    maxDeadLetters > 0 ? count(maxDeadLetters) : count(100_000)
  } per partition`;
  const full = topic.dropOldest ? ", then the oldest are removed" : ", then Produce fails";
  return [
    ["Partitions", `${partitions}, by ${partitioner}`],
    ["Unsettled messages", maxMessages > 0 ? `at most ${count(maxMessages)} per partition${full}` : "no limit"],
    ["Settled messages", maxAge > 0 ? `kept for ${writeDuration(maxAge)}${kept}` : "removed at once"],
    ["Dead letters", `kept ${dead}`],
    ["Repeats", `recognised for ${writeDuration(topic.idempotencyWindow)}`],
    ["Created", dayAndTime(new Date(topic.createTime))],
  ];
}

const orderTexts: Readonly<Record<Order, string>> = {
  key: "by key, except during retries",
  strict: "strictly by key",
  none: "none",
};

function groupFacts(group: Group): Fact[] {
  const { minBackoff, maxBackoff, nonRetryable } = group;
  return [
    ["Messages go to", group.exclusive ? "one consumer for each partition" : "any consumer"],
    ["Order", orderTexts[group.order]],
    ["Attempts", String(group.maxAttempts)],
    ["Backoff", `up to ${writeDuration(minBackoff)}, then twice as long each time, up to ${writeDuration(maxBackoff)}`],
    ["Not retried", nonRetryable.length > 0 ? nonRetryable.join(", ") : "no code"],
    ["Ack timeout", writeDuration(group.ackTimeout)],
    ["Handler timeout", writeDuration(group.handlerTimeout)],
    ["Longest run", writeDuration(group.maxRunTime)],
    ["Resume grace", writeDuration(group.resumeGrace)],
  ];
}

function GroupSettings({ board, topic, group }: { board: Board; topic: string; group: Group }) {
  const { name } = group;
  const remove = async (typed: string) => {
    await board.change((signal) => board.client.deleteGroup(topic, name, typed, signal));
  };
  return (
    <section class="settings-card" data-testid={`settings-${name}`}>
      <h2>
        Group {name} <PausedMark paused={group.paused} title="Nothing is delivered to the group" />
      </h2>
      <Facts facts={groupFacts(group)} />
      <div class="job-actions">
        <button
          type="button"
          class="small"
          data-testid="edit-group"
          onClick={() => openDialog({ kind: "edit-group", topic, group })}
        >
          Edit…
        </button>
        <button
          type="button"
          class="small"
          data-testid="move-group"
          onClick={() => openDialog({ kind: "move-group", topic, group: name })}
        >
          Move…
        </button>
        <button
          type="button"
          class="small danger apart"
          data-testid="delete-group"
          onClick={() =>
            openDialog({
              kind: "typed",
              title: `Delete the group ${name}?`,
              text: "This deletes its deliveries and retries, and ends its sessions. Its dead letters are kept.",
              name,
              of: "group",
              yes: "Delete",
              act: remove,
            })
          }
        >
          Delete the group…
        </button>
      </div>
    </section>
  );
}
