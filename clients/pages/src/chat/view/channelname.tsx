import { Icon } from "../../ui/icon";

/**
 * ChannelName shows a channel's id after a sign: a lock if it is for members only. With strong it
 * is bold. That is an element of its own: a row that becomes unread also moves, and Chromium then
 * misses changes of attributes on which the styles of its content depend.
 */
export function ChannelName(props: { id: string; membersOnly?: boolean; strong?: boolean }) {
  const { id, membersOnly = false, strong = false } = props;
  return (
    <>
      {membersOnly ? (
        <span class="lock" data-testid="members-only">
          <Icon name="lock" />
          <span class="hidden">members only: </span>
        </span>
      ) : (
        <span class="hash" aria-hidden="true">
          #
        </span>
      )}
      {strong ? <strong>{id}</strong> : id}
    </>
  );
}
