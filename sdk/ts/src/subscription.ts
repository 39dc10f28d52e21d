import type { Core } from "./core.js";
import { ClosedError } from "./error.js";
import type { Event, State } from "./event.js";
import type { Position } from "./position.js";
import { Turn } from "./queue.js";
import type { Queued } from "./roster.js";
import type { Start } from "./start.js";
import { add, remove } from "./update.js";

/**
 * Subscription is a stream of many channels' events that survives its connections: it reconnects, resumes each channel
 * from where it was, and drops what it has seen. Close it when done.
 */
export class Subscription implements AsyncIterable<Event> {
  readonly #core: Core;
  /** What next has from the queue and has not given yet. */
  #taken: Queued[] = [];
  #at = 0;
  readonly #turn = new Turn();

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * next waits for the next event; calls that overlap get one each, in the order in which they were made. It rejects
   * with the signal's reason, after which the subscription goes on, or with what ended it: a ClosedError, the reason of
   * the signal that the subscription was made with, or a ParleyError.
   */
  async next(signal?: AbortSignal): Promise<Event> {
    const release = await this.#turn.take(signal);
    try {
      return await this.#next(signal);
    } finally {
      release();
    }
  }

  async #next(signal: AbortSignal | undefined): Promise<Event> {
    for (;;) {
      if (this.#core.closed) {
        throw this.#core.signal.reason;
      }
      while (this.#at < this.#taken.length) {
        const queued = this.#taken[this.#at++] as Queued;
        if (this.#core.roster.take(queued)) {
          return queued.event;
        }
      }
      const frame = await this.#core.queue.take(signal);
      if (frame === undefined) {
        throw this.#core.error;
      }
      this.#taken = frame;
      this.#at = 0;
    }
  }

  /**
   * Iterates over the events until the subscription ends: for its own close, and its client's, the loop ends, for all
   * else it throws what next would. Leaving the loop does not close the subscription.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<Event, void> {
    for (;;) {
      let event: Event;
      try {
        event = await this.next();
      } catch (err) {
        if (err instanceof ClosedError) {
          return;
        }
        throw err;
      }
      yield event;
    }
  }

  /**
   * add follows more channels, on the same stream. One that is followed already stays as it is: remove it first to
   * begin it anew. One that was lost begins anew, also if its event has not been taken yet, which then does not come.
   *
   * It rejects with an error that is final, as CAPABILITY_MISSING, and leaves the subscription as it was. Where the
   * request may or may not have arrived, the subscription reconnects, with all channels. Between two streams it
   * resolves at once; the next stream begins with all channels, and a refusal of one of them then ends the
   * subscription, but for NOT_MEMBER, which loses the channel.
   */
  async add(start: Start | readonly Start[], signal?: AbortSignal): Promise<void> {
    await add(this.#core, isList(start) ? start : [start], signal);
  }

  /**
   * remove follows channels no longer. Events of theirs that have arrived and were not taken yet are dropped. Channels
   * that are not followed are passed over.
   */
  async remove(channelId: string | readonly string[], signal?: AbortSignal): Promise<void> {
    await remove(this.#core, typeof channelId === "string" ? [channelId] : channelId, signal);
  }

  /**
   * position gives the place in a channel's log up to which events have been taken: what to store, and to pass to
   * after() later. There is none for a channel that is not subscribed to or was lost, and for one that is to start live
   * and has not.
   */
  position(channelId: string): Position | undefined {
    const taken = this.#core.roster.get(channelId)?.taken;
    return taken === undefined ? undefined : { ...taken };
  }

  /** What the subscription is doing. */
  get state(): State {
    return this.#core.state;
  }

  /** What ended the subscription; undefined while it lives. */
  get error(): unknown {
    return this.#core.error;
  }

  /** Resolves when the subscription has ended and nothing of it runs any more. It never rejects. */
  get done(): Promise<void> {
    return this.#core.done;
  }

  /** close ends the subscription; done tells when it has. It may be called more than once. */
  close(): void {
    this.#core.close();
  }
}

function isList(start: Start | readonly Start[]): start is readonly Start[] {
  return Array.isArray(start);
}
