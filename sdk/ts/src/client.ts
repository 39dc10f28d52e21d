import { createClient, type Interceptor, type Transport } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { MessageService } from "@parleyhq/api/parley/v1/message_pb.js";
import { parseAddresses } from "./address.js";
import { type Backoff, Waits } from "./backoff.js";
import { sendBatch } from "./batch.js";
import { Caller, type Log } from "./caller.js";
import { Core, type SubscribeOptions } from "./core.js";
import { Endpoints } from "./endpoint.js";
import { abortable } from "./fetch.js";
import { type HistoryOptions, history } from "./history.js";
import {
  addMembers,
  type CreateChannelOptions,
  createChannel,
  type ListOptions,
  members,
  removeMembers,
} from "./member.js";
import type { Channel, Member, Message, MyChannel, Outgoing, ReadCursor, Receipt, SendResult } from "./message.js";
import { channels, markRead, typing } from "./mychannel.js";
import { Heads } from "./position.js";
import { type ChangeOptions, edit, get, recall, send } from "./send.js";
import type { Start } from "./start.js";
import { Subscription } from "./subscription.js";
import { type TokenSource, Tokens } from "./token.js";

/** The time that a call's first attempt is given, in milliseconds, and the wait for a stream's first frame. */
const attemptTimeoutMs = 5_000;

/** ClientOptions change how a client works. */
export interface ClientOptions {
  /** A token that stays the same. When it expires, calls and subscriptions end with TOKEN_EXPIRED. */
  token?: string;
  /** Where tokens come from, so that a client outlives its token. It goes before token. */
  tokenSource?: TokenSource;
  /** The waits between attempts. */
  backoff?: Backoff;
  /**
   * Bounds the first attempt of a call and the wait for a stream's first frame, in milliseconds. Default 5,000. A
   * second attempt may take twice, later ones four times as long, those of a batch three times that. What bounds a call
   * as a whole is its signal.
   */
  attemptTimeout?: number;
  /** The wire protocol. Default "connect". */
  protocol?: "connect" | "grpc-web";
  /** Replaces the platform's fetch, for proxies and the like. It must honour the signal and stream bodies. */
  fetch?: typeof globalThis.fetch;
  /** Interceptors around every attempt, for instance for tracing. */
  interceptors?: Interceptor[];
  /** Replaces protocol, fetch and interceptors by a Connect transport for the node at addr, a URL. */
  transport?: (addr: string) => Transport;
  /** Where retries and reconnects are logged. Default nowhere. Tokens and content are never logged. */
  log?: Log;
  /**
   * Replaces Math.random, for tests.
   * @internal
   */
  random?: () => number;
}

/** CallOptions are those of every call. */
export interface CallOptions {
  /**
   * Ends the call, which then rejects: with the signal's reason, or with an InterruptedError whose cause is the failure
   * that the call was waiting out. Without a signal a call goes on until it succeeds or fails for good.
   */
  signal?: AbortSignal;
}

/** SendOptions add to a message. */
export type SendOptions = Omit<Outgoing, "channelId" | "content"> & CallOptions;

/**
 * Client calls one Parley server, or a fleet of them. A program wants one client per identity, not one per call.
 *
 * Failures that may pass are tried again, with the same client_msg_id, until the call's signal is aborted; any other
 * rejects with a ParleyError. What this package does at each failure (states, codes, waits) is what sdk/SPEC.md asks of
 * every SDK.
 */
export class Client {
  readonly #caller: Caller;

  /**
   * Makes a client of the server at an address: `host:port`, which means http, or an http or https URL. Several
   * addresses, as an array or with commas between them, name the nodes of a fleet; all have the same scheme. It does
   * not connect; the first call does. It throws a TypeError for what is no address.
   */
  constructor(addresses: string | readonly string[], options: ClientOptions = {}) {
    const random = options.random ?? Math.random;
    const dial = (addr: string) => createClient(MessageService, newTransport(addr, options));
    this.#caller = new Caller(
      new Endpoints(parseAddresses(addresses), dial, random),
      new Tokens(options.tokenSource, options.token ?? ""),
      new Waits(options.backoff, random),
      new Heads(),
      options.attemptTimeout !== undefined && options.attemptTimeout > 0 ? options.attemptTimeout : attemptTimeoutMs,
      options.log ?? (() => {}),
    );
  }

  /**
   * send sends a message and resolves once it is durable. When the signal ends it first, the outcome is unknown, and a
   * later send with the same clientMsgId and content settles it.
   */
  async send(channelId: string, content: string, options: SendOptions = {}): Promise<Receipt> {
    const { signal, ...rest } = options;
    return send(this.#caller, { ...rest, channelId, content }, signal);
  }

  /**
   * sendBatch sends messages, of one channel or of many, and gives a result for each, in order. Messages of one channel
   * are stored in the order given: those that failed and may pass are tried again, with the same ids, before any later
   * one of their channel is stored. A message that is refused for good holds nothing up. There is no limit to the
   * number: more than fit into one request go in several, one after another.
   *
   * It resolves if every message was either stored or refused for good. Otherwise it rejects as the other calls do,
   * with a ParleyError if the call as a whole was refused and with an InterruptedError if its signal ended it; the
   * error's `results` then tell how far it came.
   */
  async sendBatch(messages: readonly Outgoing[], options: CallOptions = {}): Promise<SendResult[]> {
    return sendBatch(this.#caller, messages, options.signal);
  }

  /** edit replaces a message's content. Only its sender may. */
  async edit(channelId: string, msgId: string, content: string, options: ChangeOptions = {}): Promise<Receipt> {
    return edit(this.#caller, channelId, msgId, content, options);
  }

  /**
   * recall takes a message back for good: it stays as a tombstone without content. Its sender may, and who moderates.
   * Recalling what is recalled gives the first recall's receipt.
   */
  async recall(channelId: string, msgId: string, options: ChangeOptions = {}): Promise<Receipt> {
    return recall(this.#caller, channelId, msgId, options);
  }

  /** get gives one message as it is now. */
  async get(channelId: string, msgId: string, options: CallOptions = {}): Promise<Message> {
    return get(this.#caller, channelId, msgId, options.signal);
  }

  /**
   * history iterates over a channel's messages, each as it is now; a recalled one is a tombstone without content.
   * Without options it goes from the newest to the oldest. What it gives is at least as new as everything that this
   * client was told of the channel before. Pages are loaded as the loop needs them. RESYNC says that the log's epoch
   * changed between two pages: list anew.
   */
  history(channelId: string, options: HistoryOptions = {}): AsyncGenerator<Message, void> {
    return history(this.#caller, channelId, options);
  }

  /**
   * channels iterates over the caller's channels by id: those where he is a member, and open ones in which he has sent
   * or marked something read since he last left. Numbers and last messages may be 100 ms behind what was acknowledged.
   * Pages are loaded as the loop needs them.
   */
  channels(options: ListOptions = {}): AsyncGenerator<MyChannel, void> {
    return channels(this.#caller, options);
  }

  /** members iterates over a channel's members by user id. It wants the capability `history`. */
  members(channelId: string, options: ListOptions = {}): AsyncGenerator<Member, void> {
    return members(this.#caller, channelId, options);
  }

  /**
   * createChannel makes a channel, with the caller as a member. It wants the capability `manage`. A channel that
   * exists, also one that a first send has made, is CHANNEL_EXISTS.
   *
   * A channel has no clientMsgId, so where the answer to an attempt was lost, CHANNEL_EXISTS of the next one may be
   * about the channel that this very call made: its text then says so, and createdBy, as channels gives it, tells.
   */
  async createChannel(channelId: string, options: CreateChannelOptions = {}): Promise<Channel> {
    return createChannel(this.#caller, channelId, options);
  }

  /**
   * addMembers makes users members of a channel, any number; who is one already stays one. It wants the capability
   * `manage`; who may subscribe to an open channel may add himself. After an error some of the users may have been
   * added: it does no harm to call it again.
   */
  async addMembers(channelId: string, userIds: readonly string[], options: CallOptions = {}): Promise<void> {
    return addMembers(this.#caller, channelId, userIds, options.signal);
  }

  /**
   * removeMembers takes users off a channel, any number; who is no member is passed over. Subscriptions of theirs lose
   * a members-only channel within a second. It wants the capability `manage`; anyone may remove himself.
   */
  async removeMembers(channelId: string, userIds: readonly string[], options: CallOptions = {}): Promise<void> {
    return removeMembers(this.#caller, channelId, userIds, options.signal);
  }

  /**
   * markRead moves the caller's read cursor of a channel forward to seq, and gives where it is then; a place behind it
   * changes nothing. Above the log's head it is POSITION_OUT_OF_RANGE. It wants the capability `history`, and makes the
   * caller a member of an open channel.
   */
  async markRead(channelId: string, seq: number, options: CallOptions = {}): Promise<ReadCursor> {
    return markRead(this.#caller, channelId, seq, options.signal);
  }

  /**
   * typing tells a channel's live subscribers that the caller is typing. Call it every 3 s or so while that holds; more
   * than once a second is passed over. It is tried once: late, it would be wrong. It wants the capability `send`.
   */
  async typing(channelId: string, options: CallOptions = {}): Promise<void> {
    return typing(this.#caller, channelId, options.signal);
  }

  /**
   * subscribe follows channels: subscribe([live("a"), fromStart("b"), after(stored)]). It returns at once, and connects
   * in the background. One stream carries up to 500 channels.
   *
   * Failures that may pass lead to a new stream, after a wait or at another node; any other ends the subscription, and
   * is what next rejects with. So does NOT_MEMBER from the first stream, whose positions name the channels refused;
   * once the subscription has been live, such channels are lost instead.
   */
  subscribe(starts: Start | readonly Start[], options: SubscribeOptions = {}): Subscription {
    const list = Array.isArray(starts) ? starts : [starts];
    return new Subscription(new Core(this.#caller, list, options));
  }

  /** close ends the client for good: its subscriptions as by their own close, and its calls with an AbortError. */
  close(): void {
    this.#caller.close();
  }
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
