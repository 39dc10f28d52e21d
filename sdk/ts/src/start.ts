import { place, text } from "./check.js";
import type { Position } from "./position.js";

/** Start names a channel and the place in its log from which a subscription begins: see live, fromStart and after. */
export interface Start {
  readonly channelId: string;
  /** Absent: only what is sent from now on. Else what comes after this place. */
  readonly position?: Position;
}

/** live begins with what is sent from now on. */
export function live(channelId: string): Start {
  return { channelId };
}

/** fromStart begins with the log's first entry. */
export function fromStart(channelId: string): Start {
  return { channelId, position: { channelId, seq: 0, epoch: "" } };
}

/** after begins after a position that was stored, with all that has come since. */
export function after(position: { channelId: string; seq: number; epoch?: string }): Start {
  const { channelId, seq, epoch = "" } = position;
  return { channelId, position: { channelId, seq, epoch } };
}

/** checkStarts throws INVALID_FIELD for what can't be encoded. */
export function checkStarts(starts: readonly Start[]): void {
  for (const { channelId, position } of starts) {
    text(["channels", channelId], ["channels", position?.epoch]);
    place("channels", position?.seq);
  }
}
