import { LinkButton } from "../../ui/banner";
import { count, duration, perSecond } from "../../ui/format";
import { Table } from "../../ui/table";
import type { TopicView } from "../model/board";
import { type GroupCounts, lag } from "../model/types";
import { Chart, type Line } from "./chart";
import { openDialog } from "./dialogs";

// The maximum number of lines, beyond which they cannot be distinguished. The groups with the
// largest lag are shown.
const linesMost = 8;

/** OverTime shows a topic's last ten minutes and its groups' current counts. */
export function OverTime({ view }: { view: TopicView }) {
  const { track, at, stats, topic } = view;
  const line = (name: string, key: string, hue: string): Line => ({ name, hue, points: track.line(key) });
  const rate = (name: string, key: string, hue: string): Line => ({ name, hue, points: track.rates(key) });
  const whole = (n: number | null) => (n === null ? "–" : count(n));
  const groups = stats?.total.groups ?? [];
  const behind = [...groups].sort((a, b) => lag(b) - lag(a)).slice(0, linesMost);
  const drawn = groups.filter((g) => behind.includes(g));
  const now = at || Date.now();
  return (
    <section class="part" aria-label="Over time">
      <div class="charts" data-testid="charts">
        <Chart
          title="Depth"
          now={now}
          whole
          write={whole}
          lines={[line("stored", "length", "hue-0"), line("delayed", "delayed", "hue-5")]}
        />
        <Chart
          title="Lag"
          now={now}
          whole
          write={whole}
          lines={drawn.map((g) =>
            line(g.group, `lag:${g.group}`, `hue-${[7, 1, 4, 3, 2, 6, 8, 0][groups.indexOf(g) % 8]}`),
          )}
        />
        <Chart
          title="Per second"
          now={now}
          whole={false}
          write={perSecond}
          lines={[
            rate("produced", "produced", "hue-0"),
            rate("acknowledged", "acked", "hue-7"),
            rate("retried", "retried", "hue-6"),
          ]}
        />
        <Chart title="Dead letters" now={now} whole write={whole} lines={[line("stored", "dead", "hue-8")]} />
      </div>
      {groups.length > 0 ? (
        <Groups groups={groups} partitions={topic.partitions} />
      ) : (
        stats && (
          <p class="quiet" data-testid="no-groups">
            No consumer group yet. The topic keeps its messages.{" "}
            <LinkButton act={() => openDialog({ kind: "group", topic: topic.name })}>Create a group</LinkButton>
          </p>
        )
      )}
    </section>
  );
}

function Groups({ groups, partitions }: { groups: readonly GroupCounts[]; partitions: number }) {
  const columns: { name: string; title: string; text: (g: GroupCounts) => string }[] = [
    { name: "Lag", title: "Unread, pending, retrying and parked", text: (g) => count(lag(g)) },
    { name: "Unread", title: "Never delivered", text: (g) => count(g.unread) },
    { name: "Pending", title: "Delivered and not settled", text: (g) => count(g.pending) },
    { name: "Retrying", title: "Waiting for the next attempt", text: (g) => count(g.retrying) },
    {
      name: "Parked",
      title: "Waiting for an earlier message with the same key, in strict order",
      text: (g) => count(g.parked),
    },
    {
      name: "Oldest",
      title: "Age of the oldest message that is not settled",
      text: (g) => (g.oldestAge > 0 ? duration(g.oldestAge) : "–"),
    },
    { name: "Acked", title: "Since the group was created or moved", text: (g) => count(g.acked) },
    { name: "Retried", title: "Since the group was created or moved", text: (g) => count(g.retried) },
    {
      name: "Dead",
      title: "Dead-lettered since the group was created or moved, including replayed ones",
      text: (g) => count(g.dead),
    },
    { name: "Replayed", title: "Dead letters that were replayed", text: (g) => count(g.replayed) },
    { name: "Trimmed", title: "Removed before they were settled", text: (g) => count(g.trimmed) },
    { name: "Consumers", title: "Connected", text: (g) => count(g.consumers) },
    { name: "Owned", title: "Partitions that a consumer owns", text: (g) => `${g.ownedPartitions}/${partitions}` },
  ];
  return (
    <Table testid="groups" rows="Group" columns={columns.map(({ name, title }) => ({ name, title }))}>
      {groups.map((g) => (
        <tr key={g.group} data-testid={`group-${g.group}`}>
          <th scope="row">{g.group}</th>
          {columns.map(({ name, text }) => (
            <td key={name} class="number" data-column={name.toLowerCase()}>
              {text(g)}
            </td>
          ))}
        </tr>
      ))}
    </Table>
  );
}
