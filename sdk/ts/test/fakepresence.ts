import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { Code, type HandlerContext } from "@connectrpc/connect";
import { ErrorReason, type KickSchema } from "@parleyhq/api/parley/v1/error_pb.js";
import type { Platform } from "@parleyhq/api/parley/v1/platform_pb.js";
import * as pb from "@parleyhq/api/parley/v1/presence_pb.js";
import { type Fake, failure } from "./fake.js";
import type { FakeStream } from "./stream.js";

/** FakePresence is the presence of one stream of the fake server. */
export interface FakePresence {
  /** True for a Connect stream, false for a Subscribe stream. */
  connect: boolean;
  user: string;
  platform: Platform;
  background: boolean;
  loginToken: string;
  users: Set<string>;
  channels: Set<string>;
}

type Work = <Req, Res>(
  method: string,
  work: (req: Req, user: string) => Res,
) => (req: Req, context: HandlerContext) => Promise<Res>;

/** The number of members above which a channel has no list. */
const maxListed = 1_000;

/** Board is the presence of a fake server's users. Tests set the states. */
export class Board {
  readonly #server: Fake;
  readonly #users = new Map<string, MessageInitShape<typeof pb.PlatformPresenceSchema>[]>();
  /** The members of the channels. */
  readonly members = new Map<string, string[]>();
  /** The users and channels whose states a response or a first frame does not contain. */
  readonly late = new Set<string>();
  /** What replaced the logins that ended, by login token. */
  readonly kicked = new Map<string, MessageInitShape<typeof KickSchema>>();
  lagging = false;
  /** Called while a WatchChannel call is answered, after its state was read. */
  overtake = () => {};
  #revision = 0;
  #logins = 0;
  #connections = 0;

  constructor(server: Fake) {
    this.#server = server;
  }

  /** The presences of the live streams. */
  get live(): FakePresence[] {
    return [...this.#server.streams].map((s) => s.presence).filter((p) => p !== undefined);
  }

  /** set sets the platforms of a user and sends the state to those who watch it. */
  set(userId: string, ...platforms: (Platform | { platform: Platform; background: boolean })[]): void {
    this.#users.set(
      userId,
      platforms.map((p) => (typeof p === "number" ? { platform: p } : p)),
    );
    for (const stream of this.#server.streams) {
      const channels = [...(stream.presence?.channels ?? [])].filter((id) => this.members.get(id)?.includes(userId));
      const users = stream.presence?.users.has(userId) ? [this.user(userId)] : [];
      if (users.length + channels.length > 0) {
        this.say(stream, { users, channels: channels.map((id) => this.#delta(id, userId)) });
      }
    }
  }

  setLagging(lagging: boolean): void {
    this.lagging = lagging;
    for (const stream of this.#server.streams) {
      this.say(stream, { lagging });
    }
  }

  /** kick ends the logins of the live streams, as a newer login does. */
  kick(kick: MessageInitShape<typeof KickSchema>): void {
    for (const { loginToken } of this.live) {
      this.kicked.set(loginToken, kick);
    }
    this.#server.endStreams(failure(Code.FailedPrecondition, ErrorReason.KICKED, { kick }));
  }

  say(stream: FakeStream, update: MessageInitShape<typeof pb.PresenceUpdateSchema>): void {
    for (let i = 0; i < (this.#server.repeat ? 2 : 1); i++) {
      stream.say({ case: "presence", value: create(pb.PresenceUpdateSchema, update) });
    }
  }

  /** user returns the state of a user, with a new revision. */
  user(userId: string): pb.UserPresence {
    const platforms = this.#users.get(userId) ?? [];
    return create(pb.UserPresenceSchema, { userId, platforms, revision: BigInt(++this.#revision) });
  }

  /** channel returns the complete state of a channel, with a new revision. */
  channel(channelId: string): MessageInitShape<typeof pb.ChannelPresenceSchema> {
    const members = this.members.get(channelId) ?? [];
    const online = members.filter((id) => (this.#users.get(id)?.length ?? 0) > 0);
    return {
      channelId,
      onlineCount: online.length,
      memberCount: members.length,
      complete: true,
      online: members.length > maxListed ? [] : online.map((id) => this.user(id)),
      revision: BigInt(++this.#revision),
    };
  }

  #delta(channelId: string, userId: string): MessageInitShape<typeof pb.ChannelPresenceSchema> {
    const all = this.channel(channelId);
    const changed = (all.memberCount ?? 0) > maxListed ? [] : [this.user(userId)];
    return { ...all, complete: false, online: [], changed };
  }

  /** begin gives the stream a presence and returns its PresenceInfo. */
  begin(stream: FakeStream, req: pb.ConnectRequest, user: string, connect = true): pb.PresenceInfo {
    const kick = this.kicked.get(req.loginToken);
    if (kick !== undefined) {
      throw failure(Code.FailedPrecondition, ErrorReason.KICKED, { kick });
    }
    const loginToken = req.invisible ? "" : req.loginToken || `login-${++this.#logins}`;
    const { platform, background, watch, watchChannels } = req;
    const users = new Set(watch);
    const channels = new Set(watchChannels);
    stream.presence = { connect, user, platform, background, loginToken, users, channels };
    return create(pb.PresenceInfoSchema, {
      connectionId: req.invisible ? "" : `connection-${++this.#connections}`,
      loginToken,
      presence: {
        users: watch.filter((id) => !this.late.has(id)).map((id) => this.user(id)),
        channels: watchChannels.filter((id) => !this.late.has(id)).map((id) => this.channel(id)),
        lagging: this.lagging || undefined,
      },
    });
  }

  #find(streamId: string): FakeStream & { presence: FakePresence } {
    const stream = [...this.#server.streams].find((s) => s.id === streamId && s.presence !== undefined);
    if (stream === undefined) {
      throw failure(Code.NotFound, ErrorReason.STREAM_NOT_FOUND);
    }
    return stream as FakeStream & { presence: FakePresence };
  }

  /** calls returns the handlers of the unary calls. */
  calls(call: Work) {
    return {
      updateWatch: call("UpdateWatch", (req: pb.UpdateWatchRequest) => {
        const { presence } = this.#find(req.streamId);
        for (const id of req.remove) {
          presence.users.delete(id);
        }
        for (const id of req.add) {
          presence.users.add(id);
        }
        return { presence: req.add.filter((id) => !this.late.has(id)).map((id) => this.user(id)) };
      }),
      watchChannel: call("WatchChannel", ({ streamId, channelId }: pb.WatchChannelRequest) => {
        this.#find(streamId).presence.channels.add(channelId);
        const presence = this.late.has(channelId) ? undefined : this.channel(channelId);
        this.overtake();
        return { presence };
      }),
      unwatchChannel: call("UnwatchChannel", (req: pb.UnwatchChannelRequest) => {
        this.#find(req.streamId).presence.channels.delete(req.channelId);
        return {};
      }),
      setBackground: call("SetBackground", (req: pb.SetBackgroundRequest) => {
        this.#find(req.streamId).presence.background = req.background;
        return {};
      }),
      disconnect: call("Disconnect", (req: pb.DisconnectRequest) => {
        const stream = [...this.#server.streams].find((s) => s.id === req.streamId);
        if (stream?.presence?.connect) {
          stream.end = {};
        }
        if (stream !== undefined) {
          stream.presence = undefined;
        }
        return {};
      }),
      getPresence: call("GetPresence", (req: pb.GetPresenceRequest) => ({
        presence: req.userIds.map((id) => this.user(id)),
      })),
      signOut: call("SignOut", (_: unknown, token) => {
        this.#server.revoke(token);
        return {};
      }),
      listOnlineUsers: call("ListOnlineUsers", (req: pb.ListOnlineUsersRequest) => {
        const online = [...this.#users].filter(([, platforms]) => platforms.length > 0).map(([id]) => this.user(id));
        const from = Number(req.pageToken || 0);
        const size = req.pageSize || 100;
        return {
          presence: online.slice(from, from + size),
          nextPageToken: from + size < online.length ? `${from + size}` : "",
        };
      }),
    };
  }
}
