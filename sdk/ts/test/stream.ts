import { create } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import type { ConnectError } from "@connectrpc/connect";
import * as pb from "@parleyhq/api/parley/v1/subscription_pb.js";
import type { Fake } from "./fake.js";
import type { FakePresence } from "./fakepresence.js";

let made = 0;

/** FakeStream is one Subscribe or Connect call of the fake server. */
export class FakeStream {
  readonly id = `stream-${++made}`;
  /**
   * How the stream ends: with an error, with advice to reconnect, or as a broken connection. Tests
   * set it; undefined means that the stream continues.
   */
  end: { error?: ConnectError; withinMs?: number } | undefined;
  /** The presence of the stream, if it has one. */
  presence: FakePresence | undefined;
  /** The number of frames with events that were read from the stream. */
  said = 0;

  /** The user of the stream, which is also its token. */
  readonly user: string;
  readonly #server: Fake;
  /** The last seq that was sent, by channel. */
  readonly #sent = new Map<string, number>();
  /** The number of bytes of the texts of open messages that were sent, and their attempts. */
  readonly #shown = new Map<string, { attempt: number; bytes: number }>();
  #pending: pb.ChannelEvent[] = [];
  #frames: pb.SubscribeResponse[] = [];
  #wake = () => {};

  constructor(server: Fake, user: string) {
    this.#server = server;
    this.user = user;
  }

  wake(): void {
    this.#wake();
  }

  /** change adds and removes channels. */
  change(add: pb.ChannelPosition[], remove: string[]): void {
    for (const id of remove) {
      this.#sent.delete(id);
    }
    for (const p of add) {
      const log = this.#server.log(p.channelId);
      const after = Number(p.afterSeq ?? log.head);
      const ahead = after > log.head;
      const changed = p.epoch !== "" && p.epoch !== log.epoch;
      const gone = !ahead && after + 1 < log.oldest;
      const gap = p.afterSeq !== undefined && (ahead || changed || gone);
      const from = gap ? (gone ? log.oldest - 1 : log.head) : after;
      this.#pending.push(log.state(p.afterSeq !== undefined && !gap, after));
      if (gap) {
        const reason = changed
          ? pb.GapReason.EPOCH_CHANGED
          : ahead
            ? pb.GapReason.AHEAD_OF_LOG
            : pb.GapReason.HISTORY_GONE;
        const value = { afterSeq: BigInt(after), toSeq: BigInt(from), epoch: log.epoch, reason };
        this.push(p.channelId, from, { case: "gap", value: create(pb.ChannelGapSchema, value) });
      }
      this.#sent.set(p.channelId, from);
    }
    this.wake();
  }

  /** say sends a given frame. */
  say(frame: pb.SubscribeResponse["frame"]): void {
    this.#frames.push(create(pb.SubscribeResponseSchema, { frame }));
    this.wake();
  }

  /** push sends a given event. */
  push(channelId: string, seq: number, event: pb.ChannelEvent["event"], fromSeq = 0): void {
    this.#pending.push(create(pb.ChannelEventSchema, { channelId, seq: BigInt(seq), fromSeq: BigInt(fromSeq), event }));
    this.wake();
  }

  typing(channelId: string, userId: string): void {
    if (this.#sent.has(channelId)) {
      this.push(channelId, 0, { case: "typing", value: create(pb.TypingSchema, { userId }) });
    }
  }

  /** frames yields the stream's frames until it ends. */
  async *frames(signal: AbortSignal) {
    while (!signal.aborted) {
      // Created first, so that a wake while a frame is read is not missed.
      const woken = new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      yield* this.#frames.splice(0);
      const events = this.#server.silent ? [] : this.#collect();
      for (let i = 0; events.length > 0 && i < (this.#server.repeat ? 2 : 1); i++) {
        this.said++;
        yield create(pb.SubscribeResponseSchema, { frame: { case: "events", value: { events } } });
      }
      if (this.end?.withinMs !== undefined) {
        const value = { within: durationFromMs(this.end.withinMs) };
        yield create(pb.SubscribeResponseSchema, { frame: { case: "reconnect", value } });
      }
      if (this.end !== undefined) {
        if (this.end.error !== undefined) {
          throw this.end.error;
        }
        return;
      }
      if (events.length === 0 && (await this.#quiet(woken, signal)) && !this.#server.silent) {
        yield create(pb.SubscribeResponseSchema, { frame: { case: "heartbeat", value: {} } });
      }
    }
  }

  /**
   * quiet waits until the stream is woken or a heartbeat is due. It reports whether the heartbeat
   * was first.
   */
  async #quiet(woken: Promise<void>, signal: AbortSignal): Promise<boolean> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let aborted = () => {};
    const due = new Promise<boolean>((resolve) => {
      timer = setTimeout(() => resolve(true), this.#server.heartbeatMs);
      aborted = () => resolve(false);
      signal.addEventListener("abort", aborted);
    });
    const heartbeat = await Promise.race([due, woken.then(() => false)]);
    clearTimeout(timer);
    signal.removeEventListener("abort", aborted);
    return heartbeat;
  }

  /** deltas returns what the stream lacks of the texts of a session's open messages. */
  #deltas(id: string): pb.ChannelEvent[] {
    const deltas: pb.ChannelEvent[] = [];
    for (const { msgId, attempt, text } of this.#server.sessions.texts(id)) {
      const shown = this.#shown.get(msgId) ?? { attempt: 0, bytes: 0 };
      const offset = shown.attempt === attempt ? shown.bytes : 0;
      if (shown.attempt !== attempt || text.length > offset) {
        this.#shown.set(msgId, { attempt, bytes: text.length });
        const value = create(pb.MessageDeltaSchema, {
          msgId,
          offset: BigInt(offset),
          text: text.subarray(offset).toString(),
        });
        deltas.push(create(pb.ChannelEventSchema, { channelId: id, event: { case: "delta", value } }));
      }
    }
    return deltas;
  }

  #collect(): pb.ChannelEvent[] {
    const events = this.#pending;
    this.#pending = [];
    for (const [id, sent] of this.#sent) {
      const log = this.#server.log(id);
      if (!log.admits(this.user)) {
        this.#sent.delete(id);
        const value = create(pb.ChannelLostSchema, { reason: pb.LostReason.NOT_MEMBER });
        events.push(create(pb.ChannelEventSchema, { channelId: id, event: { case: "lost", value } }));
        continue;
      }
      for (let seq = sent + 1; seq <= log.head; seq++) {
        const skips = log.skip.get(seq) ?? 0;
        if (log.covered.has(seq)) {
          continue;
        }
        if (skips > 0) {
          log.skip.set(seq, skips - 1);
        } else {
          events.push(log.event(seq));
        }
      }
      this.#sent.set(id, log.head);
      events.push(...this.#deltas(id));
    }
    return events;
  }
}
