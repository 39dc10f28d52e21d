import type { MessageInitShape } from "@bufbuild/protobuf";
import type { ChannelMessage } from "@parleyhq/api/parley/v1/channel_pb.js";
import * as pb from "@parleyhq/api/parley/v1/subscription_pb.js";
import { integer, named, toMessage } from "./convert.js";
import type { EntryEvent, Event, Gap, GapReason, LostReason, StateEvent } from "./event.js";
import type { Position } from "./position.js";
import type { Start } from "./start.js";

/**
 * If entries before an event are missing this many times in a row, the subscription reports a gap.
 */
const holesBeforeGap = 3;

/**
 * Verdict is the result of Channel.accept:
 * - an event is delivered to the program;
 * - "drop" discards the event: it is a repeat, or its channel is no longer followed;
 * - "broken" means that entries before the event are missing. The subscription leaves the stream
 *   and resumes.
 */
export type Verdict = Event | "drop" | "broken";

/** Channel is the state of one channel of a subscription. */
export class Channel {
  readonly id: string;
  /**
   * The position of the last event that arrived. The next stream resumes from it. Undefined for a
   * live-only channel until its first state.
   */
  arrived: { seq: number; epoch: string } | undefined;
  /**
   * The position of the last event that the program took. Undefined for a live-only channel until
   * the program took its first state.
   */
  taken: Position | undefined;
  /**
   * True once the channel's state arrived on the current stream. Events before it belong to an
   * earlier subscription of the channel on the same stream and are dropped.
   */
  hasState = false;
  /** True if the current stream was requested with the channel, or the channel was added to it. */
  onStream = false;
  /**
   * True while the server has not accepted an added channel. A new stream does not request it,
   * because its refusal would end the stream.
   */
  tentative = false;
  /**
   * True once the channel's `lost` event arrived, its last event. Later streams do not request it.
   */
  lost = false;
  /** The lost channel with this id that this one replaces, while this one is tentative. */
  replaced: Channel | undefined;
  /** The number of times in a row that the entries after the position were missing on a stream. */
  #holes = 0;

  constructor(start: Start) {
    this.id = start.channelId;
    if (start.position !== undefined) {
      this.arrived = { seq: start.position.seq, epoch: start.position.epoch };
      this.taken = { ...start.position };
    }
  }

  /** active reports whether a new stream requests the channel. */
  get active(): boolean {
    return !this.tentative && !this.lost;
  }

  /**
   * request returns the channel's entry in a request that subscribes to it: its id and the position
   * from which it resumes, if there is one.
   */
  request(): MessageInitShape<typeof pb.ChannelPositionSchema> {
    if (this.arrived === undefined) {
      return { channelId: this.id };
    }
    return { channelId: this.id, afterSeq: BigInt(this.arrived.seq), epoch: this.arrived.epoch };
  }

  /**
   * accept processes an event that arrived and moves the position. If entries are missing for the
   * third time in a row, it returns a gap, and the caller passes the same event again.
   */
  accept(ev: pb.ChannelEvent): Verdict {
    const { event } = ev;
    if (this.lost) {
      return "drop";
    }
    if (event.case === "state") {
      return this.#acceptState(integer(ev.seq), event.value);
    }
    if (event.case === "lost") {
      return this.lose(event.value.reason);
    }
    if (!this.hasState || this.arrived === undefined) {
      return "drop";
    }
    switch (event.case) {
      case "gap":
        this.#holes = 0;
        this.arrived = { seq: integer(ev.seq), epoch: event.value.epoch || this.arrived.epoch };
        return this.#gap({
          afterSeq: integer(event.value.afterSeq),
          toSeq: integer(event.value.toSeq),
          epoch: event.value.epoch,
          reason: named(pb.GapReason, event.value.reason, "REASON") as GapReason,
        });
      case "typing":
        return { kind: "typing", channelId: this.id, seq: 0, epoch: this.arrived.epoch, userId: event.value.userId };
      case "delta":
        return {
          kind: "delta",
          channelId: this.id,
          seq: 0,
          epoch: this.arrived.epoch,
          msgId: event.value.msgId,
          offset: integer(event.value.offset),
          text: event.value.text,
        };
      case "sent":
      case "edited":
      case "recalled":
      case "closed":
        return this.#acceptEntry(this.arrived, range(ev), event.case, event.value);
      default: {
        // An event of a kind that this version does not know. The entries that it covers count as
        // seen.
        const { from, seq } = range(ev);
        if (seq > this.arrived.seq && from <= this.arrived.seq + 1) {
          this.arrived.seq = seq;
        }
        return "drop";
      }
    }
  }

  /** lose marks the channel as lost and returns the `lost` event for the program. */
  lose(reason: pb.LostReason): Event {
    this.lost = true;
    this.onStream = false;
    const { seq, epoch } = this.arrived ?? { seq: 0, epoch: "" };
    const why = named(pb.LostReason, reason, "REASON") as LostReason;
    return { kind: "lost", channelId: this.id, seq, epoch, reason: why };
  }

  /**
   * take records that the program took the event. A state sets the position only if there is none:
   * if the log no longer has the position, a gap follows the state.
   */
  take(e: Event): void {
    if (e.kind === "typing" || e.kind === "delta" || e.kind === "lost") {
      return;
    }
    if (e.kind === "channel_state" && this.taken !== undefined) {
      this.taken.epoch ||= e.epoch;
      return;
    }
    this.taken = { channelId: this.id, seq: e.seq, epoch: e.epoch };
  }

  #acceptState(seq: number, state: pb.ChannelState): StateEvent {
    this.hasState = true;
    if (this.arrived === undefined) {
      this.arrived = { seq, epoch: state.epoch };
    } else if (this.arrived.epoch === "" || state.recovered) {
      this.arrived.epoch = state.epoch;
    }
    return {
      kind: "channel_state",
      channelId: this.id,
      seq,
      epoch: state.epoch,
      state: {
        epoch: state.epoch,
        oldestSeq: integer(state.oldestSeq),
        headSeq: integer(state.headSeq),
        count: integer(state.count),
        expiredCount: integer(state.expiredCount),
        recovered: state.recovered,
      },
    };
  }

  #acceptEntry(
    arrived: { seq: number; epoch: string },
    { from, seq }: Range,
    kind: EntryEvent["kind"],
    message: ChannelMessage,
  ): Verdict {
    if (seq <= arrived.seq) {
      return "drop";
    }
    if (from <= arrived.seq + 1) {
      // Converted first: a message that cannot be converted must not count as seen.
      const e: Event = {
        kind,
        channelId: this.id,
        seq,
        fromSeq: from,
        epoch: arrived.epoch,
        message: toMessage(message),
      };
      arrived.seq = seq;
      this.#holes = 0;
      return e;
    }
    this.#holes++;
    if (this.#holes < holesBeforeGap) {
      return "broken";
    }
    const gap: Gap = { afterSeq: arrived.seq, toSeq: from - 1, epoch: arrived.epoch, reason: "" };
    arrived.seq = gap.toSeq;
    this.#holes = 0;
    return this.#gap(gap);
  }

  #gap(gap: Gap): Event {
    const { seq, epoch } = this.arrived as { seq: number; epoch: string };
    return { kind: "gap", channelId: this.id, seq, epoch, gap };
  }
}

/** Range is an inclusive range of log entries. */
interface Range {
  from: number;
  seq: number;
}

/** range returns the entries that an event covers. A from_seq of 0 or above seq counts as seq. */
function range(ev: pb.ChannelEvent): Range {
  const seq = integer(ev.seq);
  const from = integer(ev.fromSeq);
  return { from: from > 0 && from <= seq ? from : seq, seq };
}
