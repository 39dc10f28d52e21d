/**
 * The TypeScript SDK of Parley: durable channels over one Connect API, for Node and browsers.
 *
 * A Client sends (each message carries an id of its own, so that a repeat after a lost answer stores nothing twice),
 * iterates over history, and subscribes: a Subscription reconnects by itself, goes on from where it was, and delivers
 * each entry of a channel's log once and in order, or says with a gap event which ones can't be had.
 *
 * Given the addresses of several nodes, a Client sticks to one and moves on when that one fails; ids, positions and
 * subscriptions go with it.
 */
export { Code } from "@connectrpc/connect";
export { InterruptedError } from "./abort.js";
export type { Backoff } from "./backoff.js";
export type { Log } from "./caller.js";
export { type CallOptions, Client, type ClientOptions, type SendOptions } from "./client.js";
export type { SubscribeOptions } from "./core.js";
export { ClosedError, type ErrorInit, ParleyError, type Reason } from "./error.js";
export type {
  ChannelState,
  EntryEvent,
  Event,
  Gap,
  GapEvent,
  GapReason,
  LostEvent,
  LostReason,
  State,
  StateChange,
  StateEvent,
  TypingEvent,
} from "./event.js";
export type { HistoryOptions } from "./history.js";
export type { CreateChannelOptions, ListOptions } from "./member.js";
export type { Channel, Member, Message, MyChannel, Outgoing, ReadCursor, Receipt, SendResult } from "./message.js";
export type { Position } from "./position.js";
export type { ChangeOptions } from "./send.js";
export { after, fromStart, live, type Start } from "./start.js";
export { Subscription } from "./subscription.js";
export type { TokenSource } from "./token.js";
