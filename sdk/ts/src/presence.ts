import { ClosedError } from "./error.js";
import type { State } from "./event.js";
import type { PresenceCore } from "./presencecore.js";
import { Turn } from "./queue.js";
import type { ChannelPresence, PresenceEvent, UserPresence } from "./userpresence.js";
import { unwatch, watch } from "./watch.js";

/**
 * Presence makes a device of the user online and follows the presence of users and of channels. It
 * reconnects on its own with its login. Close it when done.
 */
export class Presence implements AsyncIterable<PresenceEvent> {
  readonly #core: PresenceCore;
  readonly #turn = new Turn();

  /** @internal */
  constructor(core: PresenceCore) {
    this.#core = core;
  }

  /**
   * next waits for a state that differs from the one that the program took last: of a watched user,
   * of a watched channel, or whether the states are lagging. If a state changes several times
   * before the program takes it, only the newest one is delivered. A reconnect delivers only what
   * changed meanwhile.
   *
   * Concurrent calls get one event each, in the order of the calls. It rejects with the signal's
   * reason, and the presence continues; or with the error that ended the presence: a ClosedError,
   * the reason of the presence's own signal, or a ParleyError such as KICKED.
   */
  async next(signal?: AbortSignal): Promise<PresenceEvent> {
    const release = await this.#turn.take(signal);
    try {
      if (this.#core.lifetime.closed) {
        throw this.#core.lifetime.signal.reason;
      }
      const event = await this.#core.watched.take(signal);
      if (event === undefined) {
        throw this.#core.lifetime.signal.reason;
      }
      return event;
    } finally {
      release();
    }
  }

  /**
   * Iterates over the events until the presence ends. If the program closed the presence or the
   * client, the loop ends; otherwise it throws as next does. Leaving the loop does not close the
   * presence.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<PresenceEvent, void> {
    for (;;) {
      let event: PresenceEvent;
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
   * watch adds users to the watched ones. Users that are watched already are ignored. It resolves
   * when the server has accepted the users; their states follow as events. After a retryable error
   * it is repeated. If it is not known whether the server made the change, the presence reconnects
   * with all users.
   *
   * It rejects with a final error such as LIMIT_EXCEEDED or NO_SHARED_CHANNEL, and none of the
   * users is watched. So it does when the signal is aborted, as a call does, and when the presence
   * ends, with its error.
   *
   * Between two streams it resolves immediately, and the next stream requests all users. If the
   * server refuses some with NO_SHARED_CHANNEL then, these are lost (see UserLostEvent). Any other
   * refusal, such as LIMIT_EXCEEDED, ends the presence, and so does any refusal before the presence
   * was live for the first time.
   */
  async watch(userId: string | readonly string[], signal?: AbortSignal): Promise<void> {
    await watch(this.#core, "users", list(userId), signal);
  }

  /**
   * unwatch removes users from the watched ones. Their states that were not taken yet are dropped.
   * Users that are not watched are ignored. Also if it rejects, the users are no longer watched.
   */
  async unwatch(userId: string | readonly string[], signal?: AbortSignal): Promise<void> {
    await unwatch(this.#core, "users", list(userId), signal);
  }

  /**
   * watchChannels adds channels to those whose members are watched, as watch does for users.
   * Requires the action `subscribe` of the channels. CHANNEL_OPEN means that a channel is open and
   * has no complete list of members. If the node of the stream is full, the presence moves to
   * another node. If there is none, watchChannels rejects with NODE_FULL after five attempts.
   * Between two streams it resolves immediately. Channels that the server refuses then are lost
   * (see ChannelLostEvent).
   */
  async watchChannels(channelId: string | readonly string[], signal?: AbortSignal): Promise<void> {
    await watch(this.#core, "channels", list(channelId), signal);
  }

  /** unwatchChannels removes channels, as unwatch does with users. */
  async unwatchChannels(channelId: string | readonly string[], signal?: AbortSignal): Promise<void> {
    await unwatch(this.#core, "channels", list(channelId), signal);
  }

  /**
   * user returns the newest state of a watched user, also if the program did not take it as an
   * event. It is undefined for a user who is not watched, and until the first state arrives. The
   * states of a stream that ended are kept.
   */
  user(userId: string): UserPresence | undefined {
    return this.#core.watched.users.get(userId)?.state;
  }

  /** channel returns the newest state of a watched channel, as user does. */
  channel(channelId: string): ChannelPresence | undefined {
    return this.#core.watched.channels.get(channelId)?.state;
  }

  /** True if the states may be older than 5 s, because the server cannot read them. */
  get lagging(): boolean {
    return this.#core.watched.lagging;
  }

  /**
   * setBackground sets whether the device is in the background. It is sent now, or with the next
   * stream. In a page, the presence no longer follows the page's visibility.
   */
  setBackground(background: boolean): void {
    this.#core.setBackground(background);
  }

  /**
   * The token of this login. It is empty until the presence was live for the first time, if it is
   * invisible, and after KICKED, because the login is over. To continue the login after a restart,
   * store it when the state becomes `live`, and pass it as the option loginToken. Delete the stored
   * one after KICKED. A page stores it in the event pagehide, not earlier.
   */
  get loginToken(): string {
    return this.#core.loginToken;
  }

  /**
   * Identifies the current connection, for example in the kick of another one. Empty until the
   * presence was live for the first time, and if it is invisible.
   */
  get connectionId(): string {
    return this.#core.connectionId;
  }

  /** The state of the presence. */
  get state(): State {
    return this.#core.lifetime.state;
  }

  /** The error that ended the presence. Undefined until then. */
  get error(): unknown {
    return this.#core.lifetime.error;
  }

  /** Resolves when the presence has ended and all its work has stopped. Never rejects. */
  get done(): Promise<void> {
    return this.#core.done;
  }

  /**
   * close ends the presence. It first calls Disconnect, for at most 2 s, so that the user is
   * offline at once; done resolves after that. Later calls have no effect. If a program ends
   * without close, its user is offline about 1 s later.
   */
  close(): void {
    this.#core.lifetime.close();
  }
}

function list(ids: string | readonly string[]): readonly string[] {
  return typeof ids === "string" ? [ids] : ids;
}
