import { createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { MessageService } from "@parleyhq/api/parley/v1/message_pb.js";
import { PresenceService } from "@parleyhq/api/parley/v1/presence_pb.js";
import { ServerService } from "@parleyhq/api/parley/v1/server_pb.js";
import { parseAddresses } from "./address.js";
import { type Backoff, Waits } from "./backoff.js";
import { sendBatch } from "./batch.js";
import { Caller, type Log } from "./caller.js";
import { Carriers } from "./carrier.js";
import { Core, type SubscribeOptions } from "./core.js";
import { Endpoints, type Rpc } from "./endpoint.js";
import { abortable } from "./fetch.js";
import { type HistoryOptions, history } from "./history.js";
import {
  addMembers,
  type CreateChannelOptions,
  createChannel,
  type ListOptions,
  members,
  removeMembers,
  updateMember,
} from "./member.js";
import type {
  ChangeReceipt,
  Channel,
  CreatedChannel,
  Member,
  Message,
  NewMember,
  Outgoing,
  ReadCursor,
  Receipt,
  Retention,
  SendResult,
  StoredMessage,
  UserChannel,
} from "./message.js";
import type { CallOptions } from "./options.js";
import { Heads } from "./position.js";
import { Presence } from "./presence.js";
import { PresenceCore, type PresenceOptions } from "./presencecore.js";
import { getPresence, onlineUsers } from "./presencelist.js";
import { type ChangeOptions, edit, get, recall, send } from "./send.js";
import { type ServerInfo, serverInfo } from "./serverinfo.js";
import { Session, type SessionInfo, type SessionListOptions, sessions } from "./session.js";
import { channel, deleteChannel, type SettingsOptions, setMembersOnly, setRetention } from "./settings.js";
import { signOut } from "./signout.js";
import type { Start } from "./start.js";
import { Subscription } from "./subscription.js";
import { type TokenSource, Tokens } from "./token.js";
import { channels, markRead, typing } from "./userchannel.js";
import type { UserPresence } from "./userpresence.js";

/** The default of attemptTimeout, in milliseconds. */
const attemptTimeoutMs = 5_000;
/** The default of callTimeout, in milliseconds. */
const callTimeoutMs = 30_000;

/** ClientOptions configures a client. */
export interface ClientOptions {
  /**
   * A fixed token. When it expires, calls and subscriptions end with TOKEN_EXPIRED. The default is
   * no token.
   */
  token?: string;
  /**
   * Returns tokens, so that the client can replace an expired one. It takes precedence over token.
   */
  tokenSource?: TokenSource;
  /** The waits between the attempts of a call and between the streams of a subscription. */
  backoff?: Backoff;
  /**
   * The time limit of a call's first attempt, and of the wait for a stream's first frame, in
   * milliseconds. The default is 5,000, also for 0. The second attempt can take twice as long,
   * later ones four times. An attempt of a batch can take three times as long.
   */
  attemptTimeout?: number;
  /**
   * The time limit of a call with all its attempts, in milliseconds. The default is 30,000; 0 means
   * no limit. A call's own timeout replaces it. A call that makes several requests has this time
   * for each of them: for each page of a list and for each 500 members. In a batch the limit
   * restarts whenever a message is stored or permanently refused. Subscriptions have no time limit.
   */
  callTimeout?: number;
  /** The wire protocol. The default is "connect". */
  protocol?: "connect" | "grpc-web";
  /** Replaces the platform's fetch. It must honour the signal and stream response bodies. */
  fetch?: typeof globalThis.fetch;
  /** Connect interceptors that wrap every attempt, for example for tracing. */
  interceptors?: Interceptor[];
  /**
   * Returns the Connect transport of the node at addr, a URL. It replaces protocol, fetch and
   * interceptors.
   */
  transport?: (addr: string) => Transport;
  /**
   * Called for each retry and each reconnect, and when a subscription loses channels or a stream
   * skips entries. The default is no log. Tokens and content are never logged.
   */
  log?: Log;
  /**
   * Replaces Math.random, for tests.
   * @internal
   */
  random?: () => number;
}

/** SendOptions are the options of Client.send. */
export type SendOptions = Omit<Outgoing, "channelId" | "content"> & CallOptions;

/**
 * Client calls one Parley server, or a fleet of them. Create one client for each identity, not one
 * for each call.
 *
 * A call repeats attempts that fail with a retryable error, with the same ids, until its time limit
 * ends or its signal is aborted. It then rejects with an InterruptedError whose cause is the last
 * failure. If no attempt failed before, it rejects with the signal's reason, or with a
 * TimeoutError. A final error rejects at once with a ParleyError. sdk/SPEC.md describes what every
 * SDK does after each failure.
 */
export class Client {
  readonly #caller: Caller;
  readonly #carriers = new Carriers();

  /**
   * Creates a client of the server at an address: `host:port`, which means http, or an http or
   * https URL. Several addresses, as an array or separated by commas, are the nodes of a fleet.
   * They must have the same scheme. The constructor does not connect. It throws a TypeError for an
   * invalid address.
   */
  constructor(addresses: string | readonly string[], options: ClientOptions = {}) {
    const random = options.random ?? Math.random;
    const { attemptTimeout = 0, callTimeout = callTimeoutMs } = options;
    this.#caller = new Caller(
      new Endpoints(parseAddresses(addresses), (addr) => dial(newTransport(addr, options)), random),
      new Tokens(options.tokenSource, options.token ?? ""),
      new Waits(options.backoff, random),
      new Heads(),
      attemptTimeout > 0 ? attemptTimeout : attemptTimeoutMs,
      callTimeout,
      options.log ?? (() => {}),
    );
  }

  /**
   * send sends a message and resolves when it is durable. If the signal or the time limit ends the
   * call, the outcome is unknown. To determine it, send again with the same clientMsgId and
   * content: the receipt's duplicate is then true if the message was stored before.
   */
  async send(channelId: string, content: string, options: SendOptions = {}): Promise<Receipt> {
    const { signal, timeout, ...rest } = options;
    return send(this.#caller, { ...rest, channelId, content }, { signal, timeout });
  }

  /**
   * sendBatch sends messages to one or more channels and returns one result per message, in order.
   * The number of messages is not limited: sendBatch makes as many requests as needed, one at a
   * time. The messages of one channel are stored in order: one that fails with a retryable error is
   * sent again before any later one of its channel. A permanently refused message does not stop the
   * others.
   *
   * It resolves when every message is either stored or permanently refused. Otherwise it rejects as
   * the other calls do: with a ParleyError if the server refused the call, with an InterruptedError
   * if the signal or the time limit ended it. The error's `results` have the result of each
   * message. The time limit restarts whenever a message is stored or permanently refused.
   */
  async sendBatch(messages: readonly Outgoing[], options: CallOptions = {}): Promise<SendResult[]> {
    return sendBatch(this.#caller, messages, options);
  }

  /** edit replaces the content of a message. Only the sender can edit. */
  async edit(channelId: string, msgId: string, content: string, options: ChangeOptions = {}): Promise<ChangeReceipt> {
    return edit(this.#caller, channelId, msgId, content, options);
  }

  /**
   * recall permanently removes the content and metadata of a message. The sender can recall it, and
   * so can a holder of the action `moderate`. Recalling a recalled message returns the first
   * recall.
   */
  async recall(channelId: string, msgId: string, options: ChangeOptions = {}): Promise<ChangeReceipt> {
    return recall(this.#caller, channelId, msgId, options);
  }

  /** get returns one message in its current state. */
  async get(channelId: string, msgId: string, options: CallOptions = {}): Promise<StoredMessage> {
    return get(this.#caller, channelId, msgId, options);
  }

  /**
   * history iterates over a channel's messages in their current state, newest first by default. The
   * list is at least as new as every seq of the channel that the server reported to this client.
   * Pages are loaded on demand. RESYNC means that the log's epoch changed between two pages: list
   * again from the start.
   */
  history(channelId: string, options: HistoryOptions = {}): AsyncGenerator<Message, void> {
    return history(this.#caller, channelId, options);
  }

  /**
   * channels iterates over the caller's channels, ordered by channel id: those of which the caller
   * is a member, and open ones in which the caller sent or marked a message after last leaving
   * them. Heads, counts and last messages can be 100 ms old. Pages are loaded on demand.
   */
  channels(options: ListOptions = {}): AsyncGenerator<UserChannel, void> {
    return channels(this.#caller, options);
  }

  /**
   * members iterates over a channel's members, ordered by user id. Requires the action `history`.
   * Pages are loaded on demand.
   */
  members(channelId: string, options: ListOptions = {}): AsyncGenerator<Member, void> {
    return members(this.#caller, channelId, options);
  }

  /**
   * createChannel creates a channel. The caller becomes its owner. Requires the action `create`. It
   * rejects with CHANNEL_EXISTS if the channel exists, unless an earlier call with the same
   * idempotencyKey and the same settings created it.
   */
  async createChannel(channelId: string, options: CreateChannelOptions = {}): Promise<CreatedChannel> {
    return createChannel(this.#caller, channelId, options);
  }

  /**
   * channel returns a channel. Its head and counts can be 100 ms old. Requires the action
   * `history`. It rejects with CHANNEL_NOT_FOUND if the channel does not exist.
   */
  async channel(channelId: string, options: CallOptions = {}): Promise<Channel> {
    return channel(this.#caller, channelId, options);
  }

  /**
   * setRetention sets how long the messages of a channel are kept, and returns the channel.
   * undefined means the server's default, an empty object that all messages are kept. It takes
   * effect within about ten seconds. Requires the action `manage`.
   */
  async setRetention(
    channelId: string,
    retention: Retention | undefined,
    options: SettingsOptions = {},
  ): Promise<Channel> {
    return setRetention(this.#caller, channelId, retention, options);
  }

  /**
   * setMembersOnly closes or opens a channel, and returns it. Only its members may use a closed
   * channel. Once the call resolves, no stream of anyone else receives a later entry, and their
   * reads fail within a second. So add the members before the call: those who only follow the
   * channel lose it. Everyone may read the whole history of a channel that was opened. Requires the
   * action `manage`, and by a capability `member:<pattern>` the role OWNER.
   */
  async setMembersOnly(channelId: string, membersOnly: boolean, options: SettingsOptions = {}): Promise<Channel> {
    return setMembersOnly(this.#caller, channelId, membersOnly, options);
  }

  /**
   * deleteChannel deletes a channel with its messages and memberships. Once it resolves, nobody can
   * send to the channel, and within a second nobody can read it. Subscriptions lose it with
   * DELETED. No send creates it again. createChannel can, within about a minute: it is retried
   * until then, and rejects with CHANNEL_DELETING if its deadline ends before. Deleting a deleted
   * channel does nothing. Requires the action `manage`, and by a capability `member:<pattern>` the
   * role OWNER. It rejects with CHANNEL_NOT_FOUND if the channel never existed.
   */
  async deleteChannel(channelId: string, options: SettingsOptions = {}): Promise<void> {
    return deleteChannel(this.#caller, channelId, options);
  }

  /**
   * addMembers adds any number of users to a channel. Existing members do not change, not even
   * their role. Requires the action `manage`, except that users who can subscribe to an open
   * channel can add themselves. After an error some of the users may be members; the call can be
   * repeated.
   */
  async addMembers(channelId: string, users: readonly NewMember[], options: CallOptions = {}): Promise<void> {
    return addMembers(this.#caller, channelId, users, options);
  }

  /**
   * updateMember sets the role of a member. A user who is not a member becomes one. Requires the
   * action `manage`, and by a capability `member:<pattern>` the role OWNER.
   */
  async updateMember(
    channelId: string,
    userId: string,
    role: "MEMBER" | "MODERATOR" | "OWNER",
    options: CallOptions = {},
  ): Promise<void> {
    return updateMember(this.#caller, channelId, userId, role, options);
  }

  /**
   * removeMembers removes any number of users from a channel. Users that are not members are
   * ignored. Subscriptions of a removed user lose a members-only channel within one second.
   * Requires the action `manage`, except that users can remove themselves.
   */
  async removeMembers(channelId: string, userIds: readonly string[], options: CallOptions = {}): Promise<void> {
    return removeMembers(this.#caller, channelId, userIds, options);
  }

  /**
   * markRead moves the caller's read cursor of a channel forward to seq and returns the cursor. A
   * lower seq changes nothing. It rejects with POSITION_OUT_OF_RANGE if seq is beyond the end of
   * the log. In an open channel a caller who is not a member becomes a follower. Requires the
   * action `history`.
   */
  async markRead(channelId: string, seq: number, options: CallOptions = {}): Promise<ReadCursor> {
    return markRead(this.#caller, channelId, seq, options);
  }

  /**
   * typing notifies the live subscribers of a channel that the caller is typing. Call it every 3 s
   * while the user types; calls beyond one a second have no effect. It is not retried, because a
   * late event would be wrong. Requires the action `send`.
   */
  async typing(channelId: string, options: CallOptions = {}): Promise<void> {
    return typing(this.#caller, channelId, options);
  }

  /**
   * session returns the session with this id: 1 to 64 of A-Z a-z 0-9 _ -. It makes no call.
   * history, edit, recall and markRead take the session's channelId too.
   */
  session(id: string): Session {
    return new Session(this.#caller, id);
  }

  /**
   * sessions iterates over the sessions of a user, those with the latest activity first. Heads,
   * counts and activity can be 100 ms old. A session whose activity changes meanwhile can come
   * twice or not at all. Pages are loaded on demand.
   */
  sessions(options: SessionListOptions = {}): AsyncGenerator<SessionInfo, void> {
    return sessions(this.#caller, options);
  }

  /**
   * serverInfo returns the server's version, limits and features. Requires a token, but no
   * capability.
   */
  async serverInfo(options: CallOptions = {}): Promise<ServerInfo> {
    return serverInfo(this.#caller, options);
  }

  /**
   * subscribe creates a subscription to channels, for example of
   * `[live("a"), fromStart("b"), after(stored)]`. It returns immediately and connects in the
   * background. A subscription has up to 500 channels.
   *
   * After a retryable error the subscription opens a new stream, after a wait or at another node. A
   * final error ends the subscription, and next rejects with it. NOT_MEMBER ends it too if no
   * stream was live before; the error's positions name the refused channels. Later, a refused
   * channel gets a `lost` event instead.
   */
  subscribe(starts: Start | readonly Start[], options: SubscribeOptions = {}): Subscription {
    const list = Array.isArray(starts) ? starts : [starts];
    return new Subscription(new Core(this.#caller, this.#carriers, list, options));
  }

  /**
   * presence makes a device of the user online and follows the presence of others, for example with
   * `{ platform: "WEB", deviceId, watch: ["ann", "bob"] }`. It returns immediately and connects in
   * the background. Requires the action `connect` of presence, and `watch` to watch anyone.
   *
   * One call is one login: an act of the user. After a retryable error the presence opens a new
   * stream with its login token. A final error ends it, and next rejects with it. KICKED means that
   * a newer login replaced this one; the error's kick describes it. Call presence again only when
   * the user asks for it.
   *
   * If the client has a subscription, its stream also serves the presence. A live one is opened
   * again for it, and KICKED then ends the subscription too. While the program does not take the
   * subscription's events, the states wait as well.
   */
  presence(options: PresenceOptions): Presence {
    return new Presence(new PresenceCore(this.#caller, this.#carriers, options));
  }

  /**
   * getPresence returns the presence of any number of users, in their order, at most 2 s old. Users
   * that do not exist are offline. It makes one request for each 500 users. Requires the action
   * `watch` of presence.
   */
  async getPresence(userIds: readonly string[], options: CallOptions = {}): Promise<UserPresence[]> {
    return getPresence(this.#caller, userIds, options);
  }

  /**
   * onlineUsers iterates over the users that are online, in no particular order. A user that is
   * online during the whole iteration is in it exactly once. Pages are loaded on demand. Requires
   * the action `list` of presence.
   */
  onlineUsers(options: ListOptions = {}): AsyncGenerator<UserPresence, void> {
    return onlineUsers(this.#caller, options);
  }

  /**
   * signOut revokes the client's token, and all tokens with the same `ssid` if it has one. Within a
   * second after it resolves, every node refuses them: calls and streams end with TOKEN_REVOKED. It
   * resolves too if the token is revoked already. It requires no capability.
   */
  async signOut(options: CallOptions = {}): Promise<void> {
    return signOut(this.#caller, options);
  }

  /**
   * close closes the client's subscriptions and presences, and aborts its calls, which reject with
   * an AbortError. Later calls are aborted too.
   */
  close(): void {
    this.#caller.close();
  }
}

function dial(transport: Transport): Rpc {
  return {
    ...createClient(MessageService, transport),
    ...createClient(PresenceService, transport),
    ...createClient(ServerService, transport),
  };
}

function newTransport(addr: string, options: ClientOptions): Transport {
  if (options.transport !== undefined) {
    return options.transport(addr);
  }
  const create = options.protocol === "grpc-web" ? createGrpcWebTransport : createConnectTransport;
  return create({
    baseUrl: addr,
    useBinaryFormat: true,
    fetch: abortable(options.fetch ?? globalThis.fetch),
    interceptors: options.interceptors,
  });
}
