import { place, text } from "./check.js";
import type { Position } from "./position.js";

/**
 * Start is a channel and the position from which a subscription starts: see live, fromStart and
 * after.
 */
export interface Start {
  readonly channelId: string;
  /** The subscription starts after this position. Undefined: only live events. */
  readonly position?: Position;
}

/** live starts with the next event. */
export function live(channelId: string): Start {
  return { channelId };
}

/** fromStart starts with the oldest entry of the log. */
export function fromStart(channelId: string): Start {
  return { channelId, position: { channelId, seq: 0, epoch: "" } };
}

/** after starts after a stored position. */
export function after(position: { channelId: string; seq: number; epoch?: string }): Start {
  const { channelId, seq, epoch = "" } = position;
  return { channelId, position: { channelId, seq, epoch } };
}

/** checkStarts throws INVALID_FIELD for what cannot be encoded. */
export function checkStarts(starts: readonly Start[]): void {
  for (const { channelId, position } of starts) {
    text(["channels", channelId], ["channels", position?.epoch]);
    place("channels", position?.seq);
  }
}
