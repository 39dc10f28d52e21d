import type { ParleyError } from "@parleyhq/sdk";
import { signal } from "@preact/signals";
import type { ChannelPresence, ChatClient, ChatPresence } from "./types";

/**
 * mostWatched is the maximum number of channels whose members are watched. The server's limit may
 * be lower.
 */
export const mostWatched = 20;

/**
 * Online follows who is online in channels, and makes the user online. Where presence is not
 * available, because the token or the server does not have it, it has no states.
 */
export class Online {
  /** The presence of the members of each watched channel, by channel id. */
  readonly channels = signal<ReadonlyMap<string, ChannelPresence>>(new Map());

  readonly #client: Pick<ChatClient, "presence">;
  readonly #signal: AbortSignal;
  readonly #watched = new Set<string>();
  /** Channels that the server refused or ended, which are not watched again. */
  readonly #refused = new Set<string>();
  #presence: ChatPresence | null = null;
  /** The server's limit, once it has refused a channel beyond it. Until then mostWatched. */
  #limit = mostWatched;

  constructor(client: Pick<ChatClient, "presence">, signal: AbortSignal) {
    this.#client = client;
    this.#signal = signal;
  }

  /**
   * Makes the user online until the signal is aborted or the server refuses. Then it resolves.
   */
  async run(): Promise<void> {
    const presence = this.#client.presence();
    if (presence === null || this.#signal.aborted) {
      presence?.close();
      return;
    }
    const close = () => presence.close();
    this.#signal.addEventListener("abort", close);
    this.#presence = presence;
    try {
      await this.#follow(presence);
    } catch {
      // The end of the login ends the subscription too, which shows the reason. Without presence
      // the page shows no dots.
    } finally {
      this.#signal.removeEventListener("abort", close);
      this.#presence = null;
      this.#watched.clear();
      this.channels.value = new Map();
    }
  }

  async #follow(presence: ChatPresence): Promise<void> {
    for (;;) {
      const event = await presence.next();
      if (event.kind === "channel") {
        this.channels.value = new Map(this.channels.value).set(event.channel.channelId, event.channel);
      } else if (event.kind === "channel_lost") {
        this.#forget(event.channelId, event.error);
      }
    }
  }

  /**
   * Watches exactly these members-only channels, at most the first mostWatched and as many as the
   * server allows. It does nothing before run and after its end.
   */
  watch(channelIds: readonly string[]): void {
    const presence = this.#presence;
    if (presence === null) return;
    const wanted = channelIds.filter((id) => !this.#refused.has(id)).slice(0, this.#limit);
    const removed = [...this.#watched].filter((id) => !wanted.includes(id));
    if (removed.length > 0) {
      for (const id of removed) this.#watched.delete(id);
      this.#drop(removed);
      // Not awaited: the SDK makes changes one after another.
      presence.unwatchChannels(removed).catch(() => {});
    }
    for (const id of wanted) {
      if (this.#watched.has(id)) continue;
      this.#watched.add(id);
      presence.watchChannels([id]).catch((error: unknown) => this.#forget(id, error));
    }
  }

  /** Allows a channel to be watched again that the server refused or ended. */
  regained(channelId: string): void {
    this.#refused.delete(channelId);
  }

  /**
   * Stops watching a channel. It is watched again only when watch finds room for it, if there were
   * too many, or if the error is retryable. Otherwise it is refused.
   */
  #forget(id: string, error: unknown): void {
    const { reason, limit = 0, retryable = false } = (error ?? {}) as Partial<ParleyError>;
    if (reason === "LIMIT_EXCEEDED" && limit > 0 && limit < this.#watched.size) {
      this.#limit = limit;
    } else if (!retryable) {
      this.#refused.add(id);
    }
    this.#watched.delete(id);
    this.#drop([id]);
  }

  #drop(ids: readonly string[]): void {
    const left = new Map(this.channels.value);
    for (const id of ids) left.delete(id);
    this.channels.value = left;
  }
}
