import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import { Platform as Platforms } from "@parleyhq/api/parley/v1/platform_pb.js";
import type {
  ConnectRequestSchema,
  ConnectResponse,
  PresenceInfo,
  PresenceUpdate,
} from "@parleyhq/api/parley/v1/presence_pb.js";
import { link, onAbort, until } from "./abort.js";
import type { Caller } from "./caller.js";
import type { Carriers } from "./carrier.js";
import { text, texts } from "./check.js";
import { Alarm } from "./clock.js";
import type { Core } from "./core.js";
import { ClosedError, type ParleyError } from "./error.js";
import type { StateChange } from "./event.js";
import { keepOpen, type Line } from "./keep.js";
import { Lifetime, type LifetimeOptions } from "./lifetime.js";
import type { StreamEnd } from "./pacer.js";
import { type Platform, platformNumber } from "./platform.js";
import { type Deferred, deferred, inTurn, Turn } from "./queue.js";
import { Stream } from "./stream.js";
import { onVisibility } from "./visibility.js";
import { apply, rewatch } from "./watch.js";
import { Watched } from "./watched.js";

/** The maximum time for which the end of a presence waits for Disconnect, in milliseconds. */
const disconnectMs = 2_000;

/** The reason for which a presence leaves its own stream when a subscription's carries it. */
const carried = new Error("a subscription carries the presence");

/** PresenceOptions are the options of a presence. */
export interface PresenceOptions extends LifetimeOptions {
  /** Required unless invisible is set. */
  platform?: Platform;
  /**
   * Identifies the device or the installation of the app. 1 to 64 of A-Z a-z 0-9 _ - Required
   * unless invisible is set.
   */
  deviceId?: string;
  /** The users to watch, up to 1,000 by default. watch adds more. */
  watch?: readonly string[];
  /**
   * The channels whose members to watch. By default a server allows 20; those beyond its limit are
   * lost. watchChannels adds more.
   */
  watchChannels?: readonly string[];
  /**
   * Whether the device is in the background. The default in a page follows its visibility; on other
   * platforms it is false. A value switches that off, and so does setBackground.
   */
  background?: boolean;
  /**
   * The loginToken of an earlier presence, to continue its login after a restart of the program.
   * The default is a new login. Two devices, or two tabs, must not use the same token: under the
   * server's login policy, each would end the other's stream. A tab that is duplicated gets a copy
   * of sessionStorage, so a page must not leave a token there while it is open.
   */
  loginToken?: string;
  /** True to watch without being online. */
  invisible?: boolean;
}

/** StreamPart is the part of a stream that belongs to a presence. */
export interface StreamPart {
  readonly stream: Stream;
  /** The users and channels that the stream was asked to follow. */
  readonly users: Set<string>;
  readonly channels: Set<string>;
  /** The background that was sent. */
  background: boolean;
  /** True once the PresenceInfo of the stream arrived. */
  live: boolean;
}

/** PresenceCore runs a presence: it keeps a stream open and holds the states. */
export class PresenceCore {
  readonly watched = new Watched();
  /** Held during a change of the stream, so that changes reach the server in order. */
  readonly turn = new Turn();
  readonly lifetime: Lifetime;
  readonly invisible: boolean;
  /** Resolves when all work of the presence has stopped. */
  readonly done: Promise<void>;

  /** The part of the current stream, or of the last one. Undefined before the first request. */
  part: StreamPart | undefined;
  background: boolean;
  loginToken: string;
  connectionId = "";

  readonly #options: PresenceOptions;
  /** The subscription whose streams carry the presence, or will carry it. */
  carrier: Core | undefined;
  /** Resolves when the presence has left its stream. Undefined until it starts to leave. */
  departure: Promise<void> | undefined;
  readonly #carriers: Carriers;
  /** Ends the streams of its own. Undefined while a subscription's streams carry the presence. */
  #alone: AbortController | undefined;
  /** Resolves with the final error, if there is one, when the carrier drops the presence. */
  #released: Deferred<ParleyError | undefined> = deferred();
  /** Aborted after Disconnect, to end the streams. */
  readonly #streams = new AbortController();
  /** True once any stream of the presence was live. */
  #wasLive = false;
  /**
   * True if the next stream begins without the channels, because the server refused a stream with
   * them. They are added one by one when it is live.
   */
  #bare = false;
  #platform = Platforms.UNSPECIFIED;
  #unfollow: (() => void) | undefined;
  /** True while a call of sync waits for its turn. */
  #queued = false;

  constructor(
    readonly caller: Caller,
    carriers: Carriers,
    options: PresenceOptions,
  ) {
    this.#carriers = carriers;
    this.#options = options;
    this.invisible = options.invisible ?? false;
    this.background = options.background ?? false;
    this.loginToken = options.loginToken ?? "";
    this.lifetime = new Lifetime(caller, options, () => new ClosedError("presence"));
    this.done = this.lifetime.run(() => this.#run()).then(() => this.watched.close());
  }

  async #run(): Promise<ParleyError | undefined> {
    const { signal } = this.lifetime;
    signal.throwIfAborted();
    onAbort(signal, () => {
      this.departure = this.#depart();
      this.lifetime.track(this.departure);
    });
    const { platform = "", deviceId, loginToken, watch = [], watchChannels = [], background } = this.#options;
    text(["device_id", deviceId], ["login_token", loginToken]);
    texts("watch", watch);
    texts("watch_channels", watchChannels);
    this.#platform = platformNumber(platform);
    this.watched.users.add(watch, false);
    this.watched.channels.add(watchChannels, false);
    if (background === undefined) {
      this.#unfollow = onVisibility((hidden) => this.#change(hidden));
    }
    this.#carriers.add(this);
    try {
      return await this.#openStreams();
    } finally {
      this.#carriers.delete(this);
      if (this.carrier !== undefined) {
        this.carrier.drop();
        this.#carriers.vacate(this.carrier);
      }
    }
  }

  /**
   * openStreams keeps a stream open: that of a subscription, or else one of its own. It returns the
   * final error of a stream, and rejects with the signal's reason when the presence ends.
   */
  async #openStreams(): Promise<ParleyError | undefined> {
    for (;;) {
      this.#carriers.seek(this);
      let error: ParleyError | undefined;
      if (this.carrier === undefined) {
        error = await this.#keepOwn();
      } else {
        this.lifetime.setState({ state: "connecting" });
      }
      if (error === undefined && this.carrier !== undefined) {
        error = await until(this.#released.promise, this.#streams.signal);
      }
      if (error?.reason === "KICKED") {
        this.loginToken = "";
      }
      if (error !== undefined) {
        return error.code === Code.Unimplemented ? error.with({ message: "the server has no PresenceService" }) : error;
      }
    }
  }

  /**
   * keepOwn keeps a stream of its own open. It returns undefined when a subscription's stream
   * carries the presence instead.
   */
  async #keepOwn(): Promise<ParleyError | undefined> {
    const alone = new AbortController();
    this.#alone = alone;
    const unlink = link(alone, this.#streams.signal);
    const line: Line = {
      name: "presence",
      follow: () => this.#follow(alone.signal),
      recover: async (end) => {
        // The server ends the stream during Disconnect.
        this.lifetime.signal.throwIfAborted();
        return this.lose(end);
      },
      setState: (change) => this.lifetime.setState(change),
    };
    try {
      return await keepOpen(this.caller, line, alone.signal);
    } catch (err) {
      if (err !== carried) {
        throw err;
      }
      return undefined;
    } finally {
      unlink();
      this.#alone = undefined;
    }
  }

  /**
   * ready reports whether the next stream of the carrier can carry the presence. Before the answer
   * to its first request it cannot, because a second request without a token is a second login.
   */
  get ready(): boolean {
    const asking = this.#alone !== undefined && this.lifetime.state === "connecting";
    return !this.lifetime.signal.aborted && (!asking || this.invisible || this.loginToken !== "");
  }

  /** live reports whether the PresenceInfo of the current stream arrived. */
  get live(): boolean {
    return this.part?.live ?? false;
  }

  /** release is called by the carrier when it ends, or refuses the presence. */
  release(error?: ParleyError): void {
    this.carrier?.drop();
    this.carrier = undefined;
    this.#released.resolve(error);
    this.#released = deferred();
  }

  /** carrierState is called by the carrier with each state of its own but `live`. */
  carrierState(change: StateChange): void {
    const repeated = change.state === "connecting" && this.lifetime.state === "connecting";
    if (this.#alone === undefined && !repeated && (change.state === "connecting" || change.state === "waiting")) {
      this.lifetime.setState(change);
    }
  }

  /** depart leaves on purpose, so that the user is offline at once, and ends the streams. */
  async #depart(): Promise<void> {
    this.watched.close();
    this.#ignorePage();
    const { part, carrier } = this;
    const shared = carrier !== undefined && carrier.stream === part?.stream;
    if (part !== undefined && !part.stream.signal.aborted) {
      // A stream of its own ends an invisible presence too.
      const left = part.live && (shared || !this.invisible) && (await this.#disconnect(part.stream.id));
      if (shared && !left) {
        carrier.reopen();
      }
    }
    this.#streams.abort(this.lifetime.signal.reason);
  }

  /** disconnect reports whether the server has ended the presence of the stream. */
  async #disconnect(streamId: string): Promise<boolean> {
    const limit = new AbortController();
    const alarm = new Alarm(() => limit.abort());
    alarm.set(disconnectMs);
    const { error } = await this.caller.call(limit.signal, disconnectMs, (rpc, options) =>
      rpc.disconnect({ streamId }, options),
    );
    alarm.close();
    return error === undefined;
  }

  #follow(signal: AbortSignal): Promise<StreamEnd> {
    let addr: string;
    return new Stream(this.caller, signal).follow<ConnectResponse>({
      open: (stream, rpc, options) => rpc.connect(this.#request(stream), options),
      live: (_, node) => {
        addr = node.addr;
      },
      deliver: async (_, { frame }) => {
        switch (frame.case) {
          case "info":
            return this.begin(addr, frame.value.presence);
          case "presence":
            return this.update(frame.value);
          default:
            return undefined;
        }
      },
    });
  }

  /**
   * ride makes a stream of the carrier the current one, instead of one of its own, and returns the
   * presence's part of the stream's request.
   */
  ride(stream: Stream): MessageInitShape<typeof ConnectRequestSchema> {
    this.#alone?.abort(carried);
    this.#alone = undefined;
    this.carrierState({ state: "connecting" });
    return this.#request(stream);
  }

  /** request makes stream the current one and returns its request. */
  #request(stream: Stream): MessageInitShape<typeof ConnectRequestSchema> {
    const watch = this.watched.users.begin();
    const channels = this.watched.channels.begin();
    const watchChannels = this.#bare ? [] : channels;
    const { background, loginToken, invisible } = this;
    this.part = { stream, users: new Set(watch), channels: new Set(watchChannels), background, live: false };
    const { deviceId } = this.#options;
    return { platform: this.#platform, deviceId, background, loginToken, invisible, watch, watchChannels };
  }

  /**
   * begin processes the PresenceInfo of the current stream. It starts to send the changes that were
   * made after the stream's request, and does not wait for them.
   */
  begin(addr: string, info: PresenceInfo | undefined): ParleyError | undefined {
    this.loginToken = info?.loginToken || this.loginToken;
    this.connectionId = info?.connectionId ?? "";
    if (this.part !== undefined) {
      this.part.live = true;
    }
    this.#bare = false;
    const { users, channels, lagging = false } = info?.presence ?? {};
    const complete = this.watched.accept({ users, channels, lagging }, this.part?.channels ?? new Set());
    this.#wasLive = true;
    const login = this.loginToken === "" ? {} : { loginToken: this.loginToken };
    this.lifetime.setState({ state: "live", addr, ...login });
    this.sync();
    if (this.#alone !== undefined) {
      this.carrier?.board();
    }
    return complete ? undefined : rewatch();
  }

  /**
   * lose ends the watched channels for which the server refused a stream because the user is not a
   * member, or the watched users with whom the user shares no channel. After another refusal of
   * channels it makes the next stream begin without channels. It reports whether to open the next
   * stream immediately. Each time fewer users or channels are left, so this ends. Before the
   * presence was live for the first time, a refusal that names users or channels is an error for
   * the program instead.
   */
  lose({ error, node }: StreamEnd): boolean {
    if (error === undefined) {
      return false;
    }
    const lost = this.#wasLive ? this.#loseNamed(error) : 0;
    const recovered = lost > 0 || this.#leaveOutChannels(error);
    if (recovered) {
      this.caller.log("warn", "presence is refused", { reason: error.reason, lost, addr: node?.addr });
    }
    return recovered;
  }

  /**
   * leaveOutChannels makes the next stream begin without channels if the error refused a stream
   * because of them. It reports whether to open that stream immediately: after NODE_FULL it is
   * opened as after any such error. Before the presence was live for the first time, only the
   * limits of the server count: any other refusal is an error for the program.
   */
  #leaveOutChannels({ reason, field, retryable }: ParleyError): boolean {
    if (this.part === undefined || this.part.live || this.part.channels.size === 0) {
      return false;
    }
    if (reason === "NODE_FULL") {
      this.#bare = true;
      return false;
    }
    const about = field.replace(/^presence\./, "").startsWith("watch_channels");
    if (!about || retryable || !(this.#wasLive || reason === "LIMIT_EXCEEDED")) {
      return false;
    }
    this.#bare = true;
    return true;
  }

  /** loseNamed ends the watched users or channels that an error names, and returns their number. */
  #loseNamed(error: ParleyError): number {
    const { reason, positions, userIds } = error;
    switch (reason) {
      case "NOT_MEMBER":
        return this.watched.lose(
          "channels",
          positions.map((p) => p.channelId),
          error,
        );
      case "NO_SHARED_CHANNEL":
        return this.watched.lose("users", userIds, error);
      default:
        return 0;
    }
  }

  /** update processes new states. It returns an error if the client has to leave the stream. */
  update(update: PresenceUpdate): ParleyError | undefined {
    return this.watched.accept(update, this.part?.channels ?? new Set()) ? undefined : rewatch();
  }

  setBackground(background: boolean): void {
    this.#ignorePage();
    this.#change(background);
  }

  /** ignorePage stops following the visibility of the page. */
  #ignorePage(): void {
    this.#unfollow?.();
    this.#unfollow = undefined;
  }

  #change(background: boolean): void {
    this.background = background;
    this.sync();
  }

  /**
   * sync starts to send what differs between the presence and the live stream. Channels that the
   * server refuses, and users that it refuses by name, are lost; any other refusal ends the
   * presence.
   */
  sync(): void {
    if (this.#queued || this.lifetime.signal.aborted) {
      return;
    }
    this.#queued = true;
    const work = inTurn(this.turn, [this.lifetime.signal], async (signal) => {
      this.#queued = false;
      const refusal = await apply(this, signal);
      if (refusal !== undefined && this.#loseNamed(refusal) > 0) {
        this.sync();
      } else if (refusal !== undefined) {
        this.lifetime.fail(refusal);
      }
    });
    // It rejects only if the presence has ended.
    this.lifetime.track(work.catch(() => {}));
  }
}
