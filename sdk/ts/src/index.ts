/**
 * The TypeScript SDK of Parley: durable channels over one Connect API, for Node and browsers.
 *
 * A Client sends messages, iterates over history and subscribes. Each message has an id of its own,
 * so that a repeat after a lost response stores nothing twice. A Subscription reconnects on its
 * own, resumes from its position, and delivers each entry of a channel's log once and in order. A
 * gap event reports entries that cannot be delivered.
 *
 * A Presence makes a device of the user online and follows the presence of other users. It
 * reconnects as a Subscription does, keeps its login, and delivers the states that the program does
 * not have.
 *
 * A Session is the conversation of a user with an assistant. An answer is written to an OpenMessage
 * while it is generated, and OpenTexts keeps the texts so far of those who read it.
 *
 * A client with the addresses of several nodes uses one node until that node fails. Ids, positions
 * and subscriptions are valid on every node.
 */
export { Code } from "@connectrpc/connect";
export { InterruptedError } from "./abort.js";
export type { Backoff } from "./backoff.js";
export type { Log } from "./caller.js";
export { Client, type ClientOptions, type SendOptions } from "./client.js";
export type { SubscribeOptions } from "./core.js";
export { ClosedError, type ErrorInit, type Kick, type KickCause, ParleyError, type Reason } from "./error.js";
export type {
  ChannelState,
  DeltaEvent,
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
export type {
  ChangeReceipt,
  Channel,
  CreatedChannel,
  Member,
  MemberRole,
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
export { OpenMessage } from "./openmessage.js";
export { OpenTexts } from "./opentext.js";
export type { CallOptions } from "./options.js";
export type { Platform } from "./platform.js";
export type { Position } from "./position.js";
export { Presence } from "./presence.js";
export type { PresenceOptions } from "./presencecore.js";
export type { ChangeOptions } from "./send.js";
export type { ServerFeature, ServerInfo, ServerLimits } from "./serverinfo.js";
export { type AppendOptions, Session, type SessionInfo, type SessionListOptions, type SessionRole } from "./session.js";
export type { SettingsOptions } from "./settings.js";
export { after, fromStart, live, type Start } from "./start.js";
export { Subscription } from "./subscription.js";
export type { TokenSource } from "./token.js";
export type {
  ChannelLostEvent,
  ChannelPresence,
  ChannelPresenceEvent,
  LaggingEvent,
  PlatformPresence,
  PresenceEvent,
  UserEvent,
  UserLostEvent,
  UserPresence,
  WatchLostEvent,
} from "./userpresence.js";
