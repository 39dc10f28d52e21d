import { safeInteger, text } from "./check.js";
import type { Position } from "./position.js";

/**
 * Start is a channel and the position from which a subscription starts. Create it with live,
 * fromStart or after.
 */
export interface Start {
  readonly channelId: string;
  /** The subscription starts after this position. Undefined: only live events. */
  readonly position?: Position;
}

/** live returns a Start for new events only. */
export function live(channelId: string): Start {
  return { channelId };
}

/** fromStart returns a Start at the oldest entry of the log. */
export function fromStart(channelId: string): Start {
  return { channelId, position: { channelId, seq: 0, epoch: "" } };
}

/** after returns a Start after a stored position. An empty epoch means that it is not known. */
export function after(position: { channelId: string; seq: number; epoch?: string }): Start {
  const { channelId, seq, epoch = "" } = position;
  return { channelId, position: { channelId, seq, epoch } };
}

/** checkStarts throws INVALID_FIELD for a channel, position or epoch that cannot be encoded. */
export function checkStarts(starts: readonly Start[]): void {
  for (const { channelId, position } of starts) {
    text(["channels", channelId], ["channels", position?.epoch]);
    safeInteger("channels", position?.seq);
  }
}
