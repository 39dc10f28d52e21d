import { TableHead } from "../../ui/tablehead";
import type { TopicView } from "../model/board";
import { count, duration, perSecond } from "../model/format";
import { type GroupCounts, lag } from "../model/types";
import { Chart, type Line } from "./chart";
import { ask } from "./dialogs";

// More lines than this can't be told apart: those of the groups that are farthest behind.
const linesMost = 8;

/** A topic's last ten minutes, and its groups now. */
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
        <Chart title="Dead letters" now={now} whole write={whole} lines={[line("kept", "dead", "hue-8")]} />
      </div>
      {groups.length > 0 ? (
        <Groups groups={groups} partitions={topic.partitions} />
      ) : (
        stats && (
          <p class="quiet" data-testid="no-groups">
            No consumer group yet: the topic keeps what is produced.{" "}
            <button type="button" class="link" onClick={() => ask({ kind: "group", topic: topic.name })}>
              Create a group
            </button>
          </p>
        )
      )}
    </section>
  );
}

function Groups({ groups, partitions }: { groups: readonly GroupCounts[]; partitions: number }) {
  const columns: [string, string, (g: GroupCounts) => string][] = [
    ["Lag", "Unread, pending, retrying and parked", (g) => count(lag(g))],
    ["Unread", "Never delivered", (g) => count(g.unread)],
    ["Pending", "Delivered and not settled", (g) => count(g.pending)],
    ["Retrying", "Waiting for their next attempt", (g) => count(g.retrying)],
    ["Parked", "Waiting for an earlier message of their key, in strict order", (g) => count(g.parked)],
    ["Oldest", "Age of the oldest that is not settled", (g) => (g.oldestAge > 0 ? duration(g.oldestAge) : "–")],
    ["Acked", "Since the group was made or moved", (g) => count(g.acked)],
    ["Retried", "Since the group was made or moved", (g) => count(g.retried)],
    ["Dead", "Given up since the group was made or moved, replayed ones included", (g) => count(g.dead)],
    ["Replayed", "Dead letters that were given back", (g) => count(g.replayed)],
    ["Trimmed", "Removed before they were settled", (g) => count(g.trimmed)],
    ["Consumers", "Connected", (g) => count(g.consumers)],
    ["Owned", "Partitions that a consumer has", (g) => `${g.ownedPartitions}/${partitions}`],
  ];
  return (
    <div class="table-box">
      <table data-testid="groups">
        <TableHead rows="Group" columns={columns} />
        <tbody>
          {groups.map((g) => (
            <tr key={g.group} data-testid={`group-${g.group}`}>
              <th scope="row">{g.group}</th>
              {columns.map(([name, , write]) => (
                <td key={name} class="number" data-column={name.toLowerCase()}>
                  {write(g)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
