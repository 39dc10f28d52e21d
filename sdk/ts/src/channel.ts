import type { MessageInitShape } from "@bufbuild/protobuf";
import * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import { integer, named, toMessage } from "./convert.js";
import type { EntryEvent, Event, Gap, GapReason, LostReason, StateEvent } from "./event.js";
import type { Position } from "./position.js";
import type { Start } from "./start.js";

/** How often the server may skip the same entries before the subscription takes them for lost. */
const holesBeforeGap = 3;

/**
 * Verdict is what is to be done with an event that arrived:
 * - an event is handed to the program;
 * - "drop" forgets it: a repeat, or one of a channel that is no longer wanted;
 * - "broken" means that entries before it are missing: the stream is not to be trusted, and begun anew.
 */
export type Verdict = Event | "drop" | "broken";

/** Channel is a subscription's view of one channel. */
export class Channel {
  readonly id: string;
  /**
   * What has arrived: from here the next stream resumes. Absent as long as the channel is to start live and has not.
   */
  arrived: { seq: number; epoch: string } | undefined;
  /** What the program has taken; absent likewise. */
  taken: Position | undefined;
  /**
   * True once the current stream has told the channel's state. Events before that belong to an earlier life of the
   * channel on the stream.
   */
  begun = false;
  /** True if the current stream was asked for the channel. */
  onStream = false;
  /** True while the server has not yet agreed to the channel: a new stream must not stand or fall with it. */
  tentative = false;
  /** True once the channel's last event has arrived: no stream is asked for it any more. */
  lost = false;
  /** The lost channel of this id that makes way, as long as this one is tentative. */
  replaced: Channel | undefined;
  /** How often entries after the position were skipped. */
  #holes = 0;

  constructor(start: Start) {
    this.id = start.channelId;
    if (start.position !== undefined) {
      this.arrived = { seq: start.position.seq, epoch: start.position.epoch };
      this.taken = { ...start.position };
    }
  }

  /** wanted reports whether a new stream is to begin with the channel. */
  get wanted(): boolean {
    return !this.tentative && !this.lost;
  }

  /** request is how a stream is asked for the channel from where it is. */
  request(): MessageInitShape<typeof pb.ChannelPositionSchema> {
    if (this.arrived === undefined) {
      return { channelId: this.id };
    }
    return { channelId: this.id, afterSeq: BigInt(this.arrived.seq), epoch: this.arrived.epoch };
  }

  /**
   * accept judges an event that arrived and moves the position. For a server that keeps skipping the verdict is a gap,
   * and the event itself is to be judged again.
   */
  accept(ev: pb.ChannelEvent): Verdict {
    const { event } = ev;
    if (this.lost) {
      return "drop";
    }
    if (event.case === "state") {
      return this.#begin(integer(ev.seq), event.value);
    }
    if (event.case === "lost") {
      return this.lose(event.value.reason);
    }
    if (!this.begun || this.arrived === undefined) {
      return "drop";
    }
    switch (event.case) {
      case "gap":
        this.#holes = 0;
        this.arrived = { seq: integer(ev.seq), epoch: event.value.epoch || this.arrived.epoch };
        return this.#gap({
          fromSeq: integer(event.value.fromSeq),
          toSeq: integer(event.value.toSeq),
          epoch: event.value.epoch,
          reason: named(pb.GapReason, event.value.reason, "REASON") as GapReason,
        });
      case "typing":
        return { kind: "typing", channelId: this.id, seq: 0, epoch: this.arrived.epoch, userId: event.value.userId };
      case "sent":
      case "edited":
      case "recalled":
        return this.#acceptEntry(this.arrived, integer(ev.seq), event.case, event.value);
      default:
        // A kind of event that this version does not know. If it has a place in the log, that is behind us now.
        if (integer(ev.seq) === this.arrived.seq + 1) {
          this.arrived.seq++;
        }
        return "drop";
    }
  }

  /** lose makes the channel's last event. */
  lose(reason: pb.LostReason): Event {
    this.lost = true;
    this.onStream = false;
    const { seq, epoch } = this.arrived ?? { seq: 0, epoch: "" };
    const why = named(pb.LostReason, reason, "REASON") as LostReason;
    return { kind: "lost", channelId: this.id, seq, epoch, reason: why };
  }

  /**
   * take records that the program takes the event. A state moves nothing but a channel that starts live; what follows a
   * position that was lost comes with a gap.
   */
  take(e: Event): void {
    if (e.kind === "typing" || e.kind === "lost") {
      return;
    }
    if (e.kind === "channel_state" && this.taken !== undefined) {
      this.taken.epoch ||= e.epoch;
      return;
    }
    this.taken = { channelId: this.id, seq: e.seq, epoch: e.epoch };
  }

  #begin(seq: number, state: pb.ChannelState): StateEvent {
    this.begun = true;
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
        recovered: state.recovered,
      },
    };
  }

  #acceptEntry(
    arrived: { seq: number; epoch: string },
    seq: number,
    kind: EntryEvent["kind"],
    message: pb.Message,
  ): Verdict {
    if (seq <= arrived.seq) {
      return "drop";
    }
    if (seq === arrived.seq + 1) {
      // Converted first: what can't be must not count as seen.
      const e: Event = { kind, channelId: this.id, seq, epoch: arrived.epoch, message: toMessage(message) };
      arrived.seq = seq;
      this.#holes = 0;
      return e;
    }
    this.#holes++;
    if (this.#holes < holesBeforeGap) {
      return "broken";
    }
    const gap: Gap = { fromSeq: arrived.seq, toSeq: seq - 1, epoch: arrived.epoch, reason: "" };
    arrived.seq = gap.toSeq;
    this.#holes = 0;
    return this.#gap(gap);
  }

  #gap(gap: Gap): Event {
    const { seq, epoch } = this.arrived as { seq: number; epoch: string };
    return { kind: "gap", channelId: this.id, seq, epoch, gap };
  }
}
