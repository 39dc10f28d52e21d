import type { Topic } from "../model/types";

/** PausedMark shows which operations of a topic are paused. It shows nothing if there are none. */
export function PausedMark({ topic }: { topic: Topic }) {
  const { producePaused, consumePaused } = topic;
  if (!producePaused && !consumePaused) return null;
  const what = producePaused && consumePaused ? "paused" : producePaused ? "producing paused" : "consuming paused";
  return (
    <span class="mark" data-testid="paused">
      {what}
    </span>
  );
}
