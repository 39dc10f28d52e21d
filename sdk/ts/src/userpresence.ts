import type * as pb from "@parleyhq/api/parley/v1/presence_pb.js";
import type { ParleyError } from "./error.js";
import { type Platform, platformName } from "./platform.js";

/** PlatformPresence is a platform on which a user is online. */
export interface PlatformPresence {
  readonly platform: Platform;
  /** True if all devices of the user on this platform are in the background. */
  readonly background: boolean;
}

/** UserPresence is the presence of a user. */
export interface UserPresence {
  readonly userId: string;
  /** The platforms on which the user is online. Empty if the user is offline. */
  readonly platforms: readonly PlatformPresence[];
}

/** ChannelPresence is the presence of a channel's members. */
export interface ChannelPresence {
  readonly channelId: string;
  /** The number of members that are online. */
  readonly onlineCount: number;
  /** The number of members. */
  readonly memberCount: number;
  /**
   * The members that are online, by user id. Undefined for a channel of more than 1,000 members.
   */
  readonly online: ReadonlyMap<string, UserPresence> | undefined;
}

/** UserEvent reports a watched user's new state. */
export interface UserEvent {
  kind: "user";
  user: UserPresence;
}

/** ChannelPresenceEvent reports a watched channel's new state. */
export interface ChannelPresenceEvent {
  kind: "channel";
  channel: ChannelPresence;
}

/**
 * LaggingEvent reports whether the states may be older than 5 s, because the server cannot read
 * them.
 */
export interface LaggingEvent {
  kind: "lagging";
  lagging: boolean;
}

/**
 * ChannelLostEvent is the last event of a watched channel: the user is no longer a member, the
 * channel has too many members, or the server refused the channel when a stream began. The presence
 * continues without the channel. To watch it again, call watchChannels.
 */
export interface ChannelLostEvent {
  kind: "channel_lost";
  channelId: string;
  /**
   * The error with which the server refused the channel: for example NOT_MEMBER, or LIMIT_EXCEEDED
   * for more channels than the server allows. While a stream is live, it is LIMIT_EXCEEDED or
   * NODE_FULL if the members of a channel have become too many, and undefined if the membership
   * ended.
   */
  error?: ParleyError | undefined;
}

/**
 * UserLostEvent is the last event of a watched user: the server refused the user when the presence
 * reconnected, because both no longer share a channel. The presence continues without the user. To
 * watch them again, call watch.
 */
export interface UserLostEvent {
  kind: "user_lost";
  userId: string;
  /** The error with which the server refused the user. */
  error?: ParleyError | undefined;
}

/** WatchLostEvent reports that a user or a channel is no longer watched. */
export type WatchLostEvent = ChannelLostEvent | UserLostEvent;

/** PresenceEvent is a change of the states that a presence watches. */
export type PresenceEvent = UserEvent | ChannelPresenceEvent | WatchLostEvent | LaggingEvent;

export function toUserPresence(user: pb.UserPresence): UserPresence {
  return {
    userId: user.userId,
    platforms: user.platforms.map((p) => ({ platform: platformName(p.platform), background: p.background })),
  };
}

/** sameUser reports whether two states of a user are equal. */
export function sameUser(a: UserPresence, b: UserPresence | undefined): boolean {
  return (
    a.platforms.length === b?.platforms.length &&
    a.platforms.every(
      ({ platform, background }, i) =>
        platform === b.platforms[i]?.platform && background === b.platforms[i]?.background,
    )
  );
}

/** sameChannel reports whether two states of a channel are equal. */
export function sameChannel(a: ChannelPresence, b: ChannelPresence | undefined): boolean {
  if (b === undefined || a.onlineCount !== b.onlineCount || a.memberCount !== b.memberCount) {
    return false;
  }
  if (a.online === undefined || b.online === undefined) {
    return a.online === b.online;
  }
  return (
    a.online.size === b.online.size &&
    [...a.online.values()].every((user) => sameUser(user, b.online?.get(user.userId)))
  );
}
