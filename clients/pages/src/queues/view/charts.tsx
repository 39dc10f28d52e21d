import { count, perSecond } from "../../ui/format";
import { line, type Point, rates } from "../model/history";
import { backlog, type GroupCounts, type GroupSample, type Sample, sum } from "../model/types";
import { Chart, type Line } from "./chart";

// The maximum number of lines, beyond which they cannot be distinguished. The groups with the
// largest backlog are shown.
const linesMost = 8;

// The order of the hues, so that lines beside each other differ.
const hues = [7, 1, 4, 3, 2, 6, 8, 0];

const whole = (n: number | null) => (n === null ? "–" : count(n));

/** Charts shows the last hour of a topic, as the server recorded it. */
export function Charts({ history, groups }: { history: readonly Sample[]; groups: readonly GroupCounts[] }) {
  const now = history.at(-1)?.at ?? Date.now();
  const running = sums(history, (g) => g.running, line);
  const retrying = sums(history, (g) => g.retrying, line);
  const produced = rates(history, (sample) => sample.produced);
  const acked = sums(history, (g) => g.acked, rates);
  const retried = sums(history, (g) => g.retried, rates);
  const dead = perMinute(sums(history, (g) => g.dead, rates));
  return (
    <div class="charts" data-testid="charts">
      <Chart title="Backlog" now={now} whole write={whole} lines={backlogs(history, groups)} />
      <Chart
        title="Running and retrying"
        now={now}
        whole
        write={whole}
        lines={[
          { name: "running", hue: "hue-7", points: running },
          { name: "retrying", hue: "hue-6", points: retrying },
        ]}
      />
      <Chart
        title="Per second"
        now={now}
        whole={false}
        write={perSecond}
        lines={[
          { name: "produced", hue: "hue-0", points: produced },
          { name: "acknowledged", hue: "hue-7", points: acked },
          { name: "retried", hue: "hue-6", points: retried },
        ]}
      />
      <Chart
        title="Dead letters per minute"
        now={now}
        whole={false}
        write={(n) => (n === null ? "–" : String(Number(n.toFixed(1))))}
        lines={[{ name: "new", hue: "hue-8", points: dead }]}
      />
    </div>
  );
}

function backlogs(history: readonly Sample[], groups: readonly GroupCounts[]): Line[] {
  const behind = [...groups].sort((a, b) => backlog(b) - backlog(a)).slice(0, linesMost);
  const drawn = groups.filter((g) => behind.includes(g));
  return drawn.map(({ group }) => {
    const index = groups.findIndex((g) => g.group === group);
    const points = line(history, (sample) => {
      const one = sample.groups.find((g) => g.group === group);
      return one && backlog(one);
    });
    return { name: group, hue: `hue-${hues[index % hues.length]}`, points };
  });
}

// Returns a number of all groups over time, or its rate.
function sums(history: readonly Sample[], of: (group: GroupSample) => number, as: typeof line): Point[] {
  return as(history, (sample) => sum(sample.groups, of));
}

function perMinute(points: readonly Point[]): Point[] {
  return points.map(({ at, value }) => ({ at, value: value === null ? null : value * 60 }));
}
