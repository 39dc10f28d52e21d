/** PausedMark marks a topic or a group that is paused. It shows nothing for others. */
export function PausedMark({ paused, title }: { paused: boolean; title: string }) {
  return paused ? (
    <span class="mark" data-testid="paused" title={title}>
      paused
    </span>
  ) : null;
}
