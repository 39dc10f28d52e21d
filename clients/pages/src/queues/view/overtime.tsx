import { LinkButton } from "../../ui/banner";
import { count, duration, perSecond } from "../../ui/format";
import { Icon } from "../../ui/icon";
import { Table } from "../../ui/table";
import type { Board, TopicView } from "../model/board";
import { line, type Point, rates } from "../model/history";
import { backlog, type GroupCounts, type GroupSample, type Sample, sum } from "../model/types";
import { Chart } from "./chart";
import { openDialog } from "./dialogs";
import { PausedMark } from "./paused";
import { PauseButton } from "./topic";

// The maximum number of lines, beyond which they cannot be distinguished. The groups with the
// largest backlog are shown.
const linesMost = 8;

// The order of the hues, so that lines beside each other differ.
const hues = [7, 1, 4, 3, 2, 6, 8, 0];

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

function Charts({ history, groups }: { history: readonly Sample[]; groups: readonly GroupCounts[] }) {
  const whole = (n: number | null) => (n === null ? "–" : count(n));
  const total = (of: (group: GroupSample) => number) => (sample: Sample) => sum(sample.groups, of);
  const behind = [...groups].sort((a, b) => backlog(b) - backlog(a)).slice(0, linesMost);
  const drawn = groups.filter((g) => behind.includes(g));
  const ofGroup = (name: string) => (sample: Sample) => {
    const group = sample.groups.find((g) => g.group === name);
    return group && backlog(group);
  };
  const now = history.at(-1)?.at ?? Date.now();
  return (
    <div class="charts" data-testid="charts">
      <Chart
        title="Backlog"
        now={now}
        whole
        write={whole}
        lines={drawn.map((g) => ({
          name: g.group,
          hue: `hue-${hues[groups.indexOf(g) % hues.length]}`,
          points: line(history, ofGroup(g.group)),
        }))}
      />
      <Chart
        title="Running and retrying"
        now={now}
        whole
        write={whole}
        lines={[
          {
            name: "running",
            hue: "hue-7",
            points: line(
              history,
              total((g) => g.running),
            ),
          },
          {
            name: "retrying",
            hue: "hue-6",
            points: line(
              history,
              total((g) => g.retrying),
            ),
          },
        ]}
      />
      <Chart
        title="Per second"
        now={now}
        whole={false}
        write={perSecond}
        lines={[
          { name: "produced", hue: "hue-0", points: rates(history, (sample) => sample.produced) },
          {
            name: "acknowledged",
            hue: "hue-7",
            points: rates(
              history,
              total((g) => g.acked),
            ),
          },
          {
            name: "retried",
            hue: "hue-6",
            points: rates(
              history,
              total((g) => g.retried),
            ),
          },
        ]}
      />
      <Chart
        title="Dead letters per minute"
        now={now}
        whole={false}
        write={(n) => (n === null ? "–" : String(Number(n.toFixed(1))))}
        lines={[
          {
            name: "new",
            hue: "hue-8",
            points: perMinute(
              rates(
                history,
                total((g) => g.dead),
              ),
            ),
          },
        ]}
      />
    </div>
  );
}

function perMinute(points: readonly Point[]): Point[] {
  return points.map(({ at, value }) => ({ at, value: value === null ? null : value * 60 }));
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
