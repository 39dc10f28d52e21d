import type * as pb from "@parleyhq/api/parley/v1/presence_pb.js";
import { lossError, type ParleyError } from "./error.js";
import { Changes } from "./queue.js";
import {
  type ChannelPresence,
  type PresenceEvent,
  sameChannel,
  sameUser,
  toUserPresence,
  type UserPresence,
  type WatchLostEvent,
} from "./userpresence.js";

/** A channel with more members has no list of those online. */
const maxListed = 1_000;
/**
 * The maximum number of members in the changes of a channel that are kept until its first state
 * arrives.
 */
const maxEarly = 2_000;

/** Entry is a watched user or channel, or whether the states are lagging. */
interface Entry {
  /** Reports whether the program has taken the current state. */
  current(): boolean;
  /** Returns the current state as an event, and records that the program took it. */
  take(): PresenceEvent;
}

/** Watching is an entry that the program can add and remove. */
interface Watching extends Entry {
  /**
   * True while the server has not accepted the entry. A new stream does not request it, because its
   * refusal would end the stream.
   */
  tentative: boolean;
  /** begin records that a new stream begins, whose revisions are not those of the last one. */
  begin(): void;
}

/** WatchedUser is a watched user. */
class WatchedUser implements Watching {
  tentative = false;
  /** The last state of the user. It is kept when a stream ends. */
  state: UserPresence | undefined;
  #taken: UserPresence | undefined;
  /** The revision of the last state on the current stream. Undefined if there was none. */
  #revision: bigint | undefined;

  begin(): void {
    this.#revision = undefined;
  }

  accept(user: pb.UserPresence): void {
    if (this.#revision === undefined || user.revision > this.#revision) {
      this.#revision = user.revision;
      this.state = toUserPresence(user);
    }
  }

  current(): boolean {
    return this.state === undefined || sameUser(this.state, this.#taken);
  }

  take(): PresenceEvent {
    this.#taken = this.state;
    return { kind: "user", user: this.state as UserPresence };
  }
}

/** WatchedChannel is a watched channel. */
class WatchedChannel implements Watching {
  tentative = false;
  /** The last state of the channel. It is kept when a stream ends. */
  state: ChannelPresence | undefined;
  #taken: ChannelPresence | undefined;
  /** The revision of the last state on the current stream. Undefined if there was none. */
  #revision: bigint | undefined;
  /** The last state, once the server has stopped following the channel on the current stream. */
  lost: pb.ChannelPresence | undefined;
  /**
   * The changes that arrived before the channel's first state. The state can be in the response of
   * WatchChannel, which later frames of the stream can overtake.
   */
  #early: pb.ChannelPresence[] = [];

  begin(): void {
    this.#revision = undefined;
    this.#early = [];
  }

  /**
   * accept returns false if too many changes arrived before the first state. followed is true if
   * the stream follows the channel as far as the client knows. Otherwise a loss may be that of an
   * earlier watch of the channel, which the program has replaced.
   */
  accept(channel: pb.ChannelPresence, followed: boolean): boolean {
    const first = this.#revision === undefined;
    const change = channel.lost ? !followed : !channel.complete && channel.memberCount <= maxListed;
    if (first && change) {
      this.#early.push(channel);
      return this.#early.reduce((n, { changed }) => n + changed.length, this.#early.length) <= maxEarly;
    }
    if (this.lost !== undefined || (!first && channel.revision <= (this.#revision as bigint))) {
      return true;
    }
    if (channel.lost) {
      this.lost = channel;
      return true;
    }
    this.#revision = channel.revision;
    const { channelId, onlineCount, memberCount } = channel;
    this.state = { channelId, onlineCount, memberCount, online: this.#online(channel) };
    for (const early of this.#early.splice(0)) {
      this.accept(early, true);
    }
    return true;
  }

  /** settle is called if the response of WatchChannel had no state. */
  settle(): void {
    this.lost ??= this.#early.find((early) => early.lost);
  }

  #online(channel: pb.ChannelPresence): Map<string, UserPresence> | undefined {
    if (channel.memberCount > maxListed || (!channel.complete && this.state?.online === undefined)) {
      return undefined;
    }
    const online = new Map(channel.complete ? [] : this.state?.online);
    for (const user of channel.complete ? channel.online : channel.changed) {
      if (user.platforms.length > 0) {
        online.set(user.userId, toUserPresence(user));
      } else {
        online.delete(user.userId);
      }
    }
    return online.size > maxListed ? undefined : online;
  }

  current(): boolean {
    return this.state === undefined || sameChannel(this.state, this.#taken);
  }

  take(): PresenceEvent {
    this.#taken = this.state;
    return { kind: "channel", channel: this.state as ChannelPresence };
  }
}

/** Lagging is whether the states may be old. */
class Lagging implements Entry {
  on = false;
  #taken = false;

  current(): boolean {
    return this.on === this.#taken;
  }

  take(): PresenceEvent {
    this.#taken = this.on;
    return { kind: "lagging", lagging: this.on };
  }
}

/** Lost is a user or a channel that the server no longer follows, or has refused. */
class Lost implements Entry {
  constructor(
    readonly kind: Kind,
    readonly id: string,
    readonly error: ParleyError | undefined,
  ) {}

  current(): boolean {
    return false;
  }

  take(): WatchLostEvent {
    const { id, error } = this;
    return this.kind === "users"
      ? { kind: "user_lost", userId: id, error }
      : { kind: "channel_lost", channelId: id, error };
  }
}

/** Kind selects the watched users or the watched channels. */
export type Kind = "users" | "channels";

/** WatchList is the watched users, or the watched channels, by id. */
export class WatchList<E extends Watching> {
  readonly #entries = new Map<string, E>();
  readonly #changes: Changes<Entry>;
  readonly #create: () => E;

  constructor(changes: Changes<Entry>, create: () => E) {
    this.#changes = changes;
    this.#create = create;
  }

  get(id: string): E | undefined {
    return this.#entries.get(id);
  }

  get ids(): string[] {
    return [...this.#entries.keys()];
  }

  /** add adds the ids that the list does not have, and returns them. */
  add(ids: readonly string[], tentative: boolean): string[] {
    const added: string[] = [];
    for (const id of ids) {
      if (!this.#entries.has(id)) {
        const entry = this.#create();
        entry.tentative = tentative;
        this.#entries.set(id, entry);
        added.push(id);
      }
    }
    return added;
  }

  /** confirm records that new streams can request the ids. */
  confirm(ids: readonly string[]): void {
    for (const id of ids) {
      const entry = this.#entries.get(id);
      if (entry !== undefined) {
        entry.tentative = false;
      }
    }
  }

  /** delete removes ids, and their states that the program has not taken. */
  delete(ids: readonly string[]): void {
    for (const id of ids) {
      const entry = this.#entries.get(id);
      if (entry !== undefined) {
        this.#changes.delete(entry);
        this.#entries.delete(id);
      }
    }
  }

  /** begin records that a new stream begins, and returns the ids for its request. */
  begin(): string[] {
    const wanted: string[] = [];
    for (const [id, entry] of this.#entries) {
      entry.begin();
      if (!entry.tentative) {
        wanted.push(id);
      }
    }
    return wanted;
  }
}

/** Watched holds the states that a presence watches, and those that the program has not taken. */
export class Watched {
  readonly #changes = new Changes<Entry>();
  readonly #lagging = new Lagging();
  /** The losses whose events were not taken, by id. */
  readonly #lost = { users: new Map<string, Lost>(), channels: new Map<string, Lost>() };
  readonly users = new WatchList(this.#changes, () => new WatchedUser());
  readonly channels = new WatchList(this.#changes, () => new WatchedChannel());

  /** lagging reports whether the states may be older than 5 s. */
  get lagging(): boolean {
    return this.#lagging.on;
  }

  /**
   * accept processes an update. States of users and channels that are not watched are ignored.
   * followed has the channels that the stream follows; a lost one is removed from it. It returns
   * false if the client has to open a new stream to get complete states.
   */
  accept(
    update: { users?: pb.UserPresence[]; channels?: pb.ChannelPresence[]; lagging?: boolean },
    followed: Set<string>,
  ): boolean {
    let complete = true;
    for (const user of update.users ?? []) {
      const entry = this.users.get(user.userId);
      entry?.accept(user);
      this.#note(entry);
    }
    for (const channel of update.channels ?? []) {
      const entry = this.channels.get(channel.channelId);
      complete = (entry?.accept(channel, followed.has(channel.channelId)) ?? true) && complete;
      this.#noteChannel(channel.channelId, followed);
    }
    if (update.lagging !== undefined) {
      this.#lagging.on = update.lagging;
      this.#note(this.#lagging);
    }
    return complete;
  }

  /** settle processes that the response of WatchChannel had no state of the channel. */
  settle(channelId: string, followed: Set<string>): void {
    this.channels.get(channelId)?.settle();
    this.#noteChannel(channelId, followed);
  }

  /**
   * lose stops watching the ids among the watched users or channels that the server refused with an
   * error, with an event each. It returns their number.
   */
  lose(kind: Kind, ids: readonly string[], error: ParleyError): number {
    const watched = ids.filter((id) => this[kind].get(id)?.tentative === false);
    for (const id of watched) {
      this.#lose(kind, id, error);
    }
    return watched.length;
  }

  #lose(kind: Kind, id: string, error?: ParleyError): void {
    this[kind].delete([id]);
    const lost = new Lost(kind, id, error);
    this.#lost[kind].set(id, lost);
    this.#note(lost);
  }

  /** regain drops the events of lost users or channels that are watched again. */
  regain(kind: Kind, ids: readonly string[]): void {
    for (const id of ids) {
      const lost = this.#lost[kind].get(id);
      if (lost !== undefined && this[kind].get(id) !== undefined) {
        this.#changes.delete(lost);
        this.#lost[kind].delete(id);
      }
    }
  }

  /**
   * take waits for a state that differs from the one that the program took last. It returns
   * undefined once close was called and there is none. It rejects with the signal's reason if the
   * signal is aborted.
   */
  async take(signal: AbortSignal | undefined): Promise<PresenceEvent | undefined> {
    const entry = await this.#changes.take(signal);
    if (entry instanceof Lost) {
      this.#lost[entry.kind].delete(entry.id);
    }
    return entry?.take();
  }

  close(): void {
    this.#changes.close();
  }

  #noteChannel(id: string, followed: Set<string>): void {
    const entry = this.channels.get(id);
    if (entry?.lost !== undefined) {
      followed.delete(id);
      this.#lose("channels", id, lossError(entry.lost.lostReason));
      return;
    }
    this.#note(entry);
  }

  #note(entry: Entry | undefined): void {
    if (entry === undefined) {
      return;
    }
    if (entry.current()) {
      this.#changes.delete(entry);
    } else {
      this.#changes.add(entry);
    }
  }
}
