import { type Failure, failure } from "../../connection/failure";
import { Connection } from "../../connection/state";
import { aborted, type ChatClient, type ChatSubscription, type Event, type StateChange } from "./types";

/** What a follower tells. */
export interface FollowerEvents {
  event(event: Event): void;
  /** The server does not let the user follow the channel. */
  refused(channelId: string, why: string): void;
  /** A new subscription takes the place of one that has ended: what came in between is not told. */
  restarted(): void;
  /** Asks which of the channels followed to give up for another one. That one is not told of from then on. */
  spare(follows: (channelId: string) => boolean): string | undefined;
}

/** How many channels one stream follows at most: the server's limit. */
export const mostFollowed = 500;

/**
 * Follower keeps one subscription to all channels, as far as one stream can follow them. Where the server refuses some
 * of them from the start it leaves those out and begins again.
 */
export class Follower {
  readonly connection = new Connection();

  readonly #client: ChatClient;
  readonly #signal: AbortSignal;
  readonly #now: () => number;
  readonly #events: FollowerEvents;
  readonly #wanted = new Set<string>();
  #asked: string[] = []; // what the subscription follows, in the SDK's order, by which the server's errors count
  #subscription: ChatSubscription | null = null;

  constructor(client: ChatClient, signal: AbortSignal, now: () => number, events: FollowerEvents) {
    this.#client = client;
    this.#signal = signal;
    this.#now = now;
    this.#events = events;
  }

  /**
   * Follows the channels, the first ones if they are too many, until the signal aborts or the server refuses for good.
   * It resolves then.
   */
  async run(channelIds: readonly string[]): Promise<void> {
    for (const id of channelIds) if (this.#wanted.size < mostFollowed) this.#wanted.add(id);
    while (!this.#signal.aborted && (await this.#follow())) this.#events.restarted();
  }

  /** Follows one more channel, if need be in place of another. What the server refuses is told by refused. */
  async add(channelId: string): Promise<void> {
    if (this.#wanted.has(channelId)) return;
    if (this.#wanted.size >= mostFollowed) this.#makeRoom();
    this.#wanted.add(channelId);
    const subscription = this.#subscription;
    if (!subscription) return;
    this.#asked.push(channelId);
    try {
      await subscription.add(channelId);
    } catch (cause) {
      if (aborted(this.#signal)) return;
      const why = failure(cause);
      // An error of the whole stream has ended it: that the channel was to be added as well says nothing about it.
      if (subscription !== this.#subscription || indexOf(why) !== undefined) return;
      if (why.reason === "LIMIT_EXCEEDED") this.drop(channelId);
      else this.#refuse(channelId, why.text);
    }
  }

  /** Follows a channel no more, as the stream has lost it. */
  drop(channelId: string): void {
    this.#wanted.delete(channelId);
    this.#asked = this.#asked.filter((id) => id !== channelId);
  }

  #makeRoom(): void {
    const spare = this.#events.spare((id) => this.#wanted.has(id));
    if (spare === undefined) return;
    this.drop(spare);
    // Not waited for: the SDK makes changes one after the other. A stream that still tells of it does no harm.
    this.#subscription?.remove(spare).catch(() => {});
  }

  async #follow(): Promise<boolean> {
    this.#asked = [...this.#wanted];
    const subscription = this.#client.subscribe([...this.#asked], (change) => this.#state(change));
    const close = () => subscription.close();
    this.#subscription = subscription;
    this.#signal.addEventListener("abort", close);
    try {
      for (;;) this.#events.event(await subscription.next());
    } catch (cause) {
      if (aborted(this.#signal)) return false;
      const why = failure(cause);
      const index = indexOf(why);
      const refused = index === undefined ? why.channels : [this.#asked[index] ?? ""];
      const known = refused.filter((id) => this.#wanted.has(id));
      if (why.cure === "token" || known.length === 0) {
        this.connection.end(why);
        return false;
      }
      for (const id of known) this.#refuse(id, why.text);
      return true;
    } finally {
      this.#signal.removeEventListener("abort", close);
      this.#subscription = null;
      subscription.close();
    }
  }

  #refuse(channelId: string, why: string): void {
    this.drop(channelId);
    this.#events.refused(channelId, why);
  }

  #state({ state, wait, error }: StateChange): void {
    if (state === "ended") return; // the subscription's error says why
    if (state === "waiting") {
      this.connection.to({ state, reason: error ? failure(error).text : "", until: this.#now() + (wait ?? 0) });
    } else {
      this.connection.to({ state });
    }
  }
}

// Which of the channels that a stream begins with an error is about.
function indexOf(why: Failure): number | undefined {
  const index = /^channels\[(\d+)\]/.exec(why.field)?.[1];
  return index === undefined ? undefined : Number(index);
}
