import { type Failure, failure } from "../../connection/failure";
import { Connection } from "../../connection/state";
import { aborted, type ChatClient, type ChatSubscription, type Event, type StateChange } from "./types";

/** FollowerEvents are the callbacks of a Follower. */
export interface FollowerEvents {
  event(event: Event): void;
  /**
   * Called when the server refuses a channel, which is then not followed.
   */
  refused(channelId: string, why: Failure): void;
  /**
   * Called before a new subscription replaces one that has ended. Events in between are not
   * delivered.
   */
  restarted(): void;
  /**
   * Returns the followed channel to give up for another one, or undefined. Its events are not
   * delivered from then on.
   */
  evict(follows: (channelId: string) => boolean): string | undefined;
}

/** mostFollowed is the maximum number of channels of one stream: the server's limit. */
export const mostFollowed = 500;

/**
 * Follower keeps one subscription to all channels, up to the limit of one stream. If the server
 * refuses some of them at the start, it subscribes again without these.
 */
export class Follower {
  readonly connection = new Connection();

  readonly #client: ChatClient;
  readonly #signal: AbortSignal;
  readonly #now: () => number;
  readonly #events: FollowerEvents;
  readonly #wanted = new Set<string>();
  #requested: string[] = []; // in the SDK's order, to which the indexes in the server's errors refer
  #subscription: ChatSubscription | null = null;

  constructor(client: ChatClient, signal: AbortSignal, now: () => number, events: FollowerEvents) {
    this.#client = client;
    this.#signal = signal;
    this.#now = now;
    this.#events = events;
  }

  /**
   * Follows the channels, at most the first mostFollowed, until the signal is aborted or the server
   * refuses permanently. Then it resolves.
   */
  async run(channelIds: readonly string[]): Promise<void> {
    for (const id of channelIds) if (this.#wanted.size < mostFollowed) this.#wanted.add(id);
    while (!this.#signal.aborted && (await this.#follow())) this.#events.restarted();
  }

  /**
   * Follows one more channel, at the limit in place of another one. Calls refused if the server
   * refuses it.
   */
  async add(channelId: string): Promise<void> {
    if (this.#wanted.has(channelId)) return;
    if (this.#wanted.size >= mostFollowed) this.#makeRoom();
    this.#wanted.add(channelId);
    const subscription = this.#subscription;
    if (!subscription) return;
    this.#requested.push(channelId);
    try {
      await subscription.add(channelId);
    } catch (cause) {
      if (aborted(this.#signal)) return;
      if (!this.#wanted.has(channelId)) return; // removed meanwhile
      const why = failure(cause);
      // An error of the whole stream ended it. It does not concern the added channel.
      if (subscription !== this.#subscription || indexOf(why) !== undefined) return;
      if (why.reason === "LIMIT_EXCEEDED") this.drop(channelId);
      else this.#refuse(channelId, why);
    }
  }

  /** Removes a channel from those to follow. It does not change the current stream. */
  drop(channelId: string): void {
    this.#wanted.delete(channelId);
    this.#requested = this.#requested.filter((id) => id !== channelId);
  }

  /** Stops following a channel. Some events of it can still arrive. */
  remove(channelId: string): void {
    if (!this.#wanted.has(channelId)) return;
    this.drop(channelId);
    // Not awaited: the SDK makes changes one after another.
    this.#subscription?.remove(channelId).catch(() => {});
  }

  #makeRoom(): void {
    const evicted = this.#events.evict((id) => this.#wanted.has(id));
    if (evicted !== undefined) this.remove(evicted);
  }

  async #follow(): Promise<boolean> {
    this.#requested = [...this.#wanted];
    const subscription = this.#client.subscribe([...this.#requested], (change) => this.#state(change));
    const close = () => subscription.close();
    this.#subscription = subscription;
    this.#signal.addEventListener("abort", close);
    try {
      for (;;) this.#events.event(await subscription.next());
    } catch (cause) {
      if (aborted(this.#signal)) return false;
      const why = failure(cause);
      const index = indexOf(why);
      const refused = index === undefined ? why.channels : [this.#requested[index] ?? ""];
      const known = refused.filter((id) => this.#wanted.has(id));
      if (why.remedy === "token" || known.length === 0) {
        this.connection.end(why);
        return false;
      }
      for (const id of known) this.#refuse(id, why);
      return true;
    } finally {
      this.#signal.removeEventListener("abort", close);
      this.#subscription = null;
      subscription.close();
    }
  }

  #refuse(channelId: string, why: Failure): void {
    this.drop(channelId);
    this.#events.refused(channelId, why);
  }

  #state({ state, wait, error }: StateChange): void {
    if (state === "ended") return; // the error of next has the reason
    if (state === "waiting") {
      this.connection.to({ state, reason: error ? failure(error).text : "", until: this.#now() + (wait ?? 0) });
    } else {
      this.connection.to({ state });
    }
  }
}

// indexOf returns the index of the requested channel that an error is about, or undefined.
function indexOf(why: Failure): number | undefined {
  const index = /^channels\[(\d+)\]/.exec(why.field)?.[1];
  return index === undefined ? undefined : Number(index);
}
