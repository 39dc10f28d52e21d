import type { MessageInitShape } from "@bufbuild/protobuf";
import type * as pb from "@parleyhq/api/parley/v1/subscription_pb.js";
import { Channel } from "./channel.js";
import type { Event } from "./event.js";
import type { Heads, Position } from "./position.js";
import type { Start } from "./start.js";

/**
 * Queued is an event that the program has not taken, and its channel. If the roster no longer has
 * this Channel object, the channel was removed after the event arrived.
 */
export interface Queued {
  event: Event;
  channel: Channel;
}

/** Roster is the set of a subscription's channels, in the order in which they were added. */
export class Roster {
  readonly #channels = new Map<string, Channel>();
  readonly #heads: Heads;

  constructor(heads: Heads) {
    this.#heads = heads;
  }

  get(id: string): Channel | undefined {
    return this.#channels.get(id);
  }

  /** active returns the channels that a new stream requests. */
  active(): Channel[] {
    return [...this.#channels.values()].filter((ch) => ch.active);
  }

  /**
   * late returns the channels that a new stream would request and that are not on the current one.
   */
  late(): Channel[] {
    return this.active().filter((ch) => !ch.onStream);
  }

  /**
   * begin records that a new stream requests the active channels, and returns their positions for
   * the request.
   */
  begin(): MessageInitShape<typeof pb.ChannelPositionSchema>[] {
    for (const ch of this.#channels.values()) {
      ch.hasState = false;
      ch.onStream = ch.active;
    }
    return this.active().map((ch) => ch.request());
  }

  /**
   * insert adds a channel and returns it. It returns undefined if the channel is followed already
   * and not lost.
   */
  insert(start: Start): Channel | undefined {
    const known = this.#channels.get(start.channelId);
    if (known !== undefined && !known.lost) {
      return undefined;
    }
    const ch = new Channel(start);
    ch.replaced = known;
    this.put(ch);
    return ch;
  }

  /** put adds a channel at the end and replaces one with the same id. */
  put(ch: Channel): void {
    this.delete(ch.id);
    this.#channels.set(ch.id, ch);
  }

  delete(id: string): void {
    this.#channels.delete(id);
  }

  /**
   * accept processes a frame's events and returns those to deliver. At the first event that shows
   * missing entries it stops and sets missing.
   */
  accept(events: pb.ChannelEvent[]): { frame: Queued[]; missing?: { channel: string; after: number } } {
    const frame: Queued[] = [];
    for (let i = 0; i < events.length; i++) {
      const ev = events[i] as pb.ChannelEvent;
      const channel = this.#channels.get(ev.channelId);
      if (channel === undefined) {
        continue;
      }
      const verdict = channel.accept(ev);
      if (verdict === "broken") {
        return { frame, missing: { channel: channel.id, after: channel.arrived?.seq ?? 0 } };
      }
      if (verdict === "drop") {
        continue;
      }
      frame.push({ event: verdict, channel });
      this.#observe(verdict);
      if (verdict.kind === "gap" && ev.event.case !== "gap") {
        i--; // The gap replaces the missing entries. The event itself is processed next.
      }
    }
    return { frame };
  }

  /** lose marks the refused channels that are followed as lost, and returns their `lost` events. */
  lose(refused: readonly Position[], reason: pb.LostReason): Queued[] {
    const frame: Queued[] = [];
    for (const { channelId } of refused) {
      const channel = this.#channels.get(channelId);
      if (channel?.active) {
        frame.push({ event: channel.lose(reason), channel });
      }
    }
    return frame;
  }

  /**
   * take records that the program took an event. It returns false if the event's channel was
   * removed.
   */
  take({ event, channel }: Queued): boolean {
    const current = this.#channels.get(channel.id);
    // The events of a lost channel are delivered until the server accepted the channel that
    // replaces it.
    const replacing = current?.tentative && current.replaced === channel;
    if (current !== channel && !replacing) {
      return false;
    }
    channel.take(event);
    if (event.kind === "lost") {
      if (replacing) {
        current.replaced = undefined;
      } else {
        this.delete(channel.id);
      }
    }
    return true;
  }

  #observe(e: Event): void {
    if (e.kind === "lost" || e.kind === "typing" || e.kind === "delta") {
      return;
    }
    if (e.kind === "gap" && e.gap.reason === "AHEAD_OF_LOG") {
      this.#heads.reset({ channelId: e.channelId, seq: e.seq, epoch: e.epoch });
      return;
    }
    const head = e.kind === "channel_state" ? e.state.headSeq : 0;
    this.#heads.observe(e.channelId, e.epoch, Math.max(e.seq, head));
  }
}
