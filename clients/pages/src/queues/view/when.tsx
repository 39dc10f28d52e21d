import { dayAndTime, duration } from "../../ui/format";

/** Since shows how long ago a time was, with the time itself as its title. */
export function Since({ at, ago = false }: { at: Date | null; ago?: boolean }) {
  if (!at) return <>–</>;
  return (
    <time dateTime={at.toISOString()} title={dayAndTime(at)}>
      {duration(Math.max(0, Date.now() - at.getTime()))}
      {ago && " ago"}
    </time>
  );
}

/** Until shows in what time a time is: `now` if it has passed. */
export function Until({ at }: { at: Date | null }) {
  if (!at) return <>–</>;
  const left = at.getTime() - Date.now();
  return (
    <time dateTime={at.toISOString()} title={dayAndTime(at)}>
      {left <= 0 ? "now" : `in ${duration(left)}`}
    </time>
  );
}
