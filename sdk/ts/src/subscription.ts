import type { Core } from "./core.js";
import { ClosedError } from "./error.js";
import type { Event, State } from "./event.js";
import type { Position } from "./position.js";
import { Turn } from "./queue.js";
import type { Queued } from "./roster.js";
import type { Start } from "./start.js";
import { add, remove, renewToken } from "./update.js";

/**
 * Subscription delivers the events of channels. It reconnects on its own, resumes each channel from
 * its position, and drops repeated events. Close it when done.
 */
export class Subscription implements AsyncIterable<Event> {
  readonly #core: Core;
  /** The events that next took from the queue. Those from #at on are not returned yet. */
  #taken: Queued[] = [];
  #at = 0;
  readonly #turn = new Turn();

  /** @internal */
  constructor(core: Core) {
    this.#core = core;
  }

  /**
   * next waits for the next event. Concurrent calls get one event each, in the order of the calls.
   * It rejects with the signal's reason, and the subscription continues; or with the error that
   * ended the subscription: a ClosedError, the reason of the subscription's own signal, or a
   * ParleyError.
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
      if (this.#core.lifetime.closed) {
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
        throw this.#core.lifetime.error;
      }
      this.#taken = frame;
      this.#at = 0;
    }
  }

  /**
   * Iterates over the events until the subscription ends. If the program closed the subscription or
   * the client, the loop ends; otherwise it throws as next does. Leaving the loop does not close
   * the subscription.
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
   * add adds channels to the subscription, on the same stream. It ignores channels that are
   * followed already; to start one from another position, remove it first. A lost channel starts
   * again, and its lost event is dropped if it was not taken yet.
   *
   * It rejects with a final error such as CAPABILITY_MISSING, and the subscription does not change.
   * If the outcome is unknown, the subscription reconnects with all channels. Between two streams
   * it resolves immediately, and the next stream requests all channels. If the server then refuses
   * one of them, only the refused channels are lost.
   */
  async add(start: Start | readonly Start[], signal?: AbortSignal): Promise<void> {
    await add(this.#core, isList(start) ? start : [start], signal);
  }

  /**
   * remove removes channels from the subscription. Their events that were not taken yet are
   * dropped. Channels that are not followed are ignored.
   */
  async remove(channelId: string | readonly string[], signal?: AbortSignal): Promise<void> {
    await remove(this.#core, typeof channelId === "string" ? [channelId] : channelId, signal);
  }

  /**
   * renewToken gets a new token from the client's tokenSource and makes the subscription continue
   * with it, for example because the user's rights have changed. The client's later calls use it
   * too. Each channel that it does not allow is lost, with LostReason.CAPABILITY_MISSING. The
   * subscription stays on its stream. It reconnects if the outcome is unknown, if the stream is
   * opening, or if it carries presence.
   *
   * An error of the tokenSource changes nothing. After another error the client has the new token,
   * and the subscription is still on its stream with the one before. With a fixed token renewToken
   * does nothing.
   */
  async renewToken(signal?: AbortSignal): Promise<void> {
    await renewToken(this.#core, signal);
  }

  /**
   * position returns the position of the last event of a channel that the program took. Store it,
   * and pass it to after() later. It is undefined for a channel that is not followed or was lost,
   * and for a live-only channel before its first state.
   */
  position(channelId: string): Position | undefined {
    const taken = this.#core.roster.get(channelId)?.taken;
    return taken === undefined ? undefined : { ...taken };
  }

  /** The state of the subscription. */
  get state(): State {
    return this.#core.lifetime.state;
  }

  /** The error that ended the subscription. Undefined until then. */
  get error(): unknown {
    return this.#core.lifetime.error;
  }

  /** Resolves when the subscription has ended and all its work has stopped. Never rejects. */
  get done(): Promise<void> {
    return this.#core.done;
  }

  /** close ends the subscription; done resolves when it has ended. Later calls have no effect. */
  close(): void {
    this.#core.lifetime.close();
  }
}

function isList(start: Start | readonly Start[]): start is readonly Start[] {
  return Array.isArray(start);
}
