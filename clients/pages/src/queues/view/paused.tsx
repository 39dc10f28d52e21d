import type { Topic } from "../model/types";

/** Says what of a topic is stopped; nothing if all of it runs. */
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
