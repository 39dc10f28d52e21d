import { LinkButton } from "../../ui/banner";
import { count, duration } from "../../ui/format";
import { Icon } from "../../ui/icon";
import { Table } from "../../ui/table";
import type { Board, TopicView } from "../model/board";
import type { GroupCounts } from "../model/types";
import { Charts } from "./charts";
import { openDialog } from "./dialogs";
import { PausedMark } from "./paused";
import { PauseButton } from "./topic";

/** OverTime shows a topic's last hour and its groups' current counts. */
export function OverTime({ board, view }: { board: Board; view: TopicView }) {
  const { history, stats, topic } = view;
  const groups = stats?.total.groups ?? [];
  return (
    <section class="part" aria-label="Overview">
      <Charts history={history} groups={groups} />
      {stats && history.length < 2 && (
        <p class="quiet" data-testid="no-history">
          The server records the topic every 5 s from now on, for an hour.
        </p>
      )}
      {groups.length > 0 && <Groups board={board} topic={topic.name} groups={groups} partitions={topic.partitions} />}
      {stats && groups.length === 0 && (
        <p class="quiet" data-testid="no-groups">
          No consumer group yet. The topic keeps its messages.{" "}
          <LinkButton act={() => openDialog({ kind: "group", topic: topic.name })}>Create a group</LinkButton>
        </p>
      )}
      {groups.length > 0 && (
        <button
          type="button"
          class="small"
          data-testid="new-group"
          onClick={() => openDialog({ kind: "group", topic: topic.name })}
        >
          <Icon name="plus" /> Group
        </button>
      )}
    </section>
  );
}

const actions = { name: "Actions", hidden: true };

interface Shown {
  readonly name: string;
  readonly title: string;
  readonly text: (group: GroupCounts) => string;
  /** The column is shown only if this number is not 0 in some group. */
  readonly only?: (group: GroupCounts) => number;
}

function total(name: string, title: string, of: (group: GroupCounts) => number, rare = false): Shown {
  return { name, title, text: (g) => count(of(g)), ...(rare && { only: of }) };
}

const since = "since the group was created or moved";

function columns(groups: readonly GroupCounts[], partitions: number): readonly Shown[] {
  const all: Shown[] = [
    total("Waiting", "Can be delivered, or wait for an earlier message of their key", (g) => g.waiting),
    total("Running", "Held by consumers", (g) => g.running),
    total("Retrying", "Wait for the next attempt", (g) => g.retrying),
    {
      name: "Oldest",
      title: "Age of the oldest message that is not settled",
      text: (g) => (g.oldestAge > 0 ? duration(g.oldestAge) : "–"),
    },
    total("Acked", `Acknowledged ${since}`, (g) => g.acked),
    total("Retried", `Failed attempts that were followed by another one, ${since}`, (g) => g.retried),
    total("Dead", `Became dead letters ${since}, including replayed ones`, (g) => g.dead),
    total("Replayed", "Dead letters that were replayed", (g) => g.replayed, true),
    total("Cancelled", `Cancelled ${since}`, (g) => g.cancelled, true),
    total("Expired", `Expired before a handler began them, ${since}`, (g) => g.expired, true),
    total("Trimmed", `Removed before they were settled, ${since}`, (g) => g.trimmed, true),
    total("Redelivered", `Delivered again without counting as an attempt, ${since}`, (g) => g.redelivered, true),
    total("Consumers", "Sessions", (g) => g.sessions),
    {
      name: "Dispatched",
      title: "Partitions that a node dispatches",
      text: (g) => `${g.dispatched}/${partitions}`,
      only: (g) => partitions - g.dispatched,
    },
  ];
  return all.filter(({ only }) => only === undefined || groups.some((g) => only(g) > 0));
}

function Groups(props: { board: Board; topic: string; groups: readonly GroupCounts[]; partitions: number }) {
  const { board, topic, groups, partitions } = props;
  const shown = columns(groups, partitions);
  const settings = new Map(board.groups.value?.map((g) => [g.name, g]));
  return (
    <Table testid="groups" rows="Group" columns={[...shown.map(({ name, title }) => ({ name, title })), actions]}>
      {groups.map((g) => {
        const paused = settings.get(g.group)?.paused ?? false;
        return (
          <tr key={g.group} data-testid={`group-${g.group}`}>
            <th scope="row">
              {g.group} <PausedMark paused={paused} title="Nothing is delivered to the group" />
            </th>
            {shown.map(({ name, text }) => (
              <td key={name} class="number" data-column={name.toLowerCase()}>
                {text(g)}
              </td>
            ))}
            <td class="number">
              {settings.has(g.group) && (
                <PauseButton
                  testid={paused ? "resume-group" : "pause-group"}
                  paused={paused}
                  label={`the group ${g.group}`}
                  act={() => board.change((signal) => board.client.pauseGroup(topic, g.group, !paused, signal))}
                  ask={{
                    title: `Pause the group ${g.group}?`,
                    text: "Nothing more is delivered to it. Deliveries in flight can still be settled.",
                  }}
                />
              )}
            </td>
          </tr>
        );
      })}
    </Table>
  );
}
