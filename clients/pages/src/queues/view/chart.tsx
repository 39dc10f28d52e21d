import { signal, useSignal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";
import { brief } from "../../ui/format";
import { type Point, span } from "../model/history";
import { ticks } from "../model/scale";

/** Line is a line of a chart. hue is one of the hue classes, or another class that sets --hue. */
export interface Line {
  name: string;
  hue: string;
  points: readonly Point[];
}

const height = 148;
const edge = { top: 8, right: 8, bottom: 20, left: 46 };

/** The time that the user points at, in all charts. Null if there is none. */
const pointed = signal<number | null>(null);

/**
 * Chart shows lines over the time up to now, the time of the last sample. With whole, the axis has
 * only integers. write formats a value.
 */
export function Chart(props: {
  title: string;
  lines: readonly Line[];
  now: number;
  whole: boolean;
  write: (value: number | null) => string;
}) {
  const { title, lines, now, whole, write } = props;
  const box = useRef<HTMLDivElement>(null);
  const width = useSignal(0);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => {
      width.value = element.clientWidth;
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [width]);

  const shown = windowOf(lines, now);
  const from = now - shown;
  const inner = Math.max(1, width.value - edge.left - edge.right);
  const x = (at: number) => edge.left + ((at - from) / shown) * inner;
  const highest = Math.max(0, ...lines.flatMap((l) => l.points.map((p) => (p.at >= from ? (p.value ?? 0) : 0))));
  const marks = ticks(highest, 3, whole);
  const top = marks.at(-1) ?? 1;
  const y = (value: number) => edge.top + (1 - value / top) * (height - edge.top - edge.bottom);
  const at = pointed.value !== null && pointed.value >= from ? Math.min(pointed.value, now) : null;
  const point = (event: PointerEvent) => {
    const left = (event.currentTarget as Element).getBoundingClientRect().left;
    pointed.value = from + ((event.clientX - left - edge.left) / inner) * shown;
  };
  const step = (event: KeyboardEvent) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    pointed.value = Math.min(now, Math.max(from, (at ?? now) + (by * shown) / 60));
  };
  const summary = lines.map((line) => `${line.name} ${write(valueAt(line.points, at))}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>
        <b>{title}</b>
        <span class="when">{at === null ? "" : ago(now - at)}</span>
        <span class="legend">
          {lines.map((line, i) => (
            <span key={line.name} class={line.hue}>
              <svg class="key" viewBox="0 0 16 8" aria-hidden="true">
                <path class={`line dash-${i % 4}`} d="M0 4H16" />
              </svg>
              {line.name} <output>{write(valueAt(line.points, at))}</output>
            </span>
          ))}
        </span>
      </figcaption>
      <div
        ref={box}
        class="plot"
        role="slider"
        aria-label={`${title}, seconds ago`}
        aria-valuemin={0}
        aria-valuemax={Math.round(shown / 1_000)}
        aria-valuenow={Math.round((now - (at ?? now)) / 1_000)}
        aria-valuetext={`${at === null ? "now" : ago(now - at)}: ${summary}`}
        tabIndex={0}
        onKeyDown={step}
        onBlur={leave}
      >
        <svg width={width} height={height} onPointerMove={point} onPointerLeave={leave} aria-hidden="true">
          {marks.map((value) => (
            <g key={value}>
              <path class="grid" d={`M${edge.left} ${y(value)}H${edge.left + inner}`} />
              <text x={edge.left - 6} y={y(value) + 4} text-anchor="end">
                {brief(value)}
              </text>
            </g>
          ))}
          <text x={edge.left} y={height - 4}>
            {ago(shown)}
          </text>
          <text x={edge.left + inner} y={height - 4} text-anchor="end">
            now
          </text>
          {lines.map((line, i) => (
            <path key={line.name} class={`line ${line.hue} dash-${i % 4}`} d={pathOf(line.points, from, x, y)} />
          ))}
          {at !== null && <path class="pointer" d={`M${x(at)} ${edge.top}V${height - edge.bottom}`} />}
        </svg>
      </div>
    </figure>
  );
}

function leave(): void {
  pointed.value = null;
}

// windowOf returns the time that the chart covers: as much as the lines have, at least five minutes
// and at most an hour.
function windowOf(lines: readonly Line[], now: number): number {
  const first = Math.min(now, ...lines.map((line) => line.points[0]?.at ?? now));
  return [300_000, 900_000, 1_800_000].find((ms) => now - first <= ms) ?? span;
}

function pathOf(
  points: readonly Point[],
  from: number,
  x: (at: number) => number,
  y: (value: number) => number,
): string {
  let path = "";
  let pen = false;
  for (const [i, { at, value }] of points.entries()) {
    const seen = at >= from;
    if (value !== null && seen) {
      const alone = !pen && (points[i + 1]?.value ?? null) === null;
      path += `${pen ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}${alone ? "h1" : ""}`;
    }
    pen = value !== null && seen;
  }
  return path;
}

// valueAt returns the value at a time, or for null the newest one.
function valueAt(points: readonly Point[], at: number | null): number | null {
  if (at === null) return points.at(-1)?.value ?? null;
  return points.findLast((point) => point.at <= at)?.value ?? null;
}

function ago(ms: number): string {
  return ms < 60_000 ? `${Math.round(ms / 1_000)} s ago` : `${Number((ms / 60_000).toFixed(1))} min ago`;
}
