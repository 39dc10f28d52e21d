import { Code } from "@connectrpc/connect";
import { type ChannelEvent, LostReason, type SubscribeResponse } from "@parleyhq/api/parley/v1/subscription_pb.js";
import { onAbort } from "./abort.js";
import type { Caller } from "./caller.js";
import type { Carriers } from "./carrier.js";
import { ClosedError, ParleyError, tokenRefused } from "./error.js";
import type { StateChange } from "./event.js";
import { keepOpen, type Line } from "./keep.js";
import { Lifetime, type LifetimeOptions } from "./lifetime.js";
import type { StreamEnd } from "./pacer.js";
import type { PresenceCore } from "./presencecore.js";
import { Queue, Turn } from "./queue.js";
import { type Queued, Roster } from "./roster.js";
import { checkStarts, type Start } from "./start.js";
import { Stream, streamError } from "./stream.js";
import { catchUp, resubscribe } from "./update.js";

/**
 * The maximum number of queued frames. A program that is slower than its channels fills this queue
 * and then the connection's flow-control window. The server then ends the stream, and the
 * subscription resumes.
 */
const queuedFrames = 4;

/** The error with which a subscription leaves a stream because its presence has changed. */
const presenceChanged = streamError(Code.Aborted, "the presence of the stream has changed");

/** The refusals whose positions name the channels that are refused, and why these are then lost. */
const lostReasons: ReadonlyMap<string, LostReason> = new Map([
  ["NOT_MEMBER", LostReason.NOT_MEMBER],
  ["CHANNEL_NOT_FOUND", LostReason.DELETED],
  ["CAPABILITY_MISSING", LostReason.CAPABILITY_MISSING],
]);

/** SubscribeOptions are the options of a subscription. */
export type SubscribeOptions = LifetimeOptions;

/** Core runs a subscription: it keeps a stream open and queues its events. */
export class Core implements Line {
  readonly name = "subscription";
  readonly roster: Roster;
  readonly queue = new Queue<Queued[]>(queuedFrames);
  /** Held during a change of the stream's channels, so that changes reach the server in order. */
  readonly turn = new Turn();
  readonly lifetime: Lifetime;
  /** Resolves when all work of the subscription has stopped. */
  readonly done: Promise<void>;

  /** The current stream. Undefined between two streams. */
  stream: Stream | undefined;
  /** The channels of the current stream's request that were removed before its first frame. */
  removed: string[] = [];
  /** The token that renewToken replaced last. */
  outdated = "";

  /** The presence that the subscription's streams carry. */
  rider: PresenceCore | undefined;
  /** True if the streams carry no presence any more, because one was refused or separated. */
  barred = false;
  /** The presence of the current stream. */
  #onBoard: PresenceCore | undefined;
  readonly #carriers: Carriers;
  /** Aborted after the lifetime, to end the streams. */
  readonly #streams = new AbortController();
  /** True once any stream of the subscription got its first frame. */
  #wasLive = false;

  constructor(
    readonly caller: Caller,
    carriers: Carriers,
    starts: readonly Start[],
    options: SubscribeOptions,
  ) {
    this.roster = new Roster(caller.heads);
    this.lifetime = new Lifetime(caller, options, () => new ClosedError("subscription"));
    this.#carriers = carriers;
    if (!this.signal.aborted) {
      onAbort(this.signal, () => this.lifetime.track(this.#endStreams()));
      carriers.enter(this);
    }
    this.done = this.lifetime.run(() => this.#run(starts)).then(() => this.queue.close());
  }

  /** signal is aborted when the subscription ends. */
  get signal(): AbortSignal {
    return this.lifetime.signal;
  }

  async #run(starts: readonly Start[]): Promise<ParleyError | undefined> {
    try {
      checkStarts(starts);
      for (const start of starts) {
        this.roster.insert(start);
      }
      return await keepOpen(this.caller, this, this.signal);
    } finally {
      this.stream = undefined;
      this.#carriers.leave(this);
      this.rider?.release();
    }
  }

  /** endStreams ends the stream, after its presence has left if that ends too. */
  async #endStreams(): Promise<void> {
    // client.close ends the presence in the same task.
    await Promise.resolve();
    await this.#onBoard?.departure;
    this.#streams.abort(this.signal.reason);
  }

  /** carriesPresence reports whether the current stream carries presence. */
  get carriesPresence(): boolean {
    return this.#onBoard !== undefined;
  }

  /** carry makes the streams of the subscription carry a presence that has no carrier. */
  carry(presence: PresenceCore): void {
    this.rider = presence;
    presence.carrier = this;
    this.board();
  }

  /** board opens a new stream if the current one does not carry the presence. */
  board(): void {
    if (this.#onBoard === undefined && this.rider?.ready) {
      this.reopen();
    }
  }

  /** reopen opens a new stream if there is one. */
  reopen(): void {
    this.stream?.leave(presenceChanged);
  }

  /** drop ends the link to the presence. */
  drop(): void {
    this.rider = undefined;
    this.#onBoard = undefined;
  }

  async follow(): Promise<StreamEnd> {
    const end = await this.#followOne();
    this.stream = undefined;
    return end;
  }

  #followOne(): Promise<StreamEnd> {
    let addr: string;
    return new Stream(this.caller, this.#streams.signal).follow<SubscribeResponse>({
      open: (stream, rpc, options) => {
        this.stream = stream;
        this.removed = [];
        this.#onBoard = this.rider?.ready ? this.rider : undefined;
        const presence = this.#onBoard?.ride(stream);
        return rpc.subscribe({ channels: this.roster.begin(), presence }, options);
      },
      live: (stream, node) => {
        if (stream.token !== "" && stream.token === this.outdated) {
          this.outdated = ""; // once: the source may return that token again
          stream.leave(resubscribe());
          return;
        }
        addr = node.addr;
        this.#wasLive = true;
        const late = this.removed.length > 0 || this.roster.late().length > 0;
        this.setState({ state: "live", addr: node.addr });
        if (late) {
          // Sends the channel changes that were made after the stream's request.
          this.lifetime.track(catchUp(this, stream));
        }
      },
      deliver: async (_, { frame }) => {
        const known = frame.case === "events" || frame.case === "heartbeat";
        if (known && this.#onBoard?.live === false) {
          // A server that has PresenceService sends the PresenceInfo first.
          this.#refuse(this.#onBoard);
        }
        switch (frame.case) {
          case "events":
            return (await this.#deliver(frame.value.events))
              ? undefined
              : streamError(Code.DataLoss, "the stream skipped entries", true);
          case "presenceInfo":
            return this.#onBoard?.begin(addr, frame.value);
          case "presence":
            return this.#onBoard?.update(frame.value);
          default:
            return undefined;
        }
      },
    });
  }

  /**
   * deliver queues events, and waits while the queue is full. It returns false if entries are
   * missing; events before them are queued. It also waits after the stream was left, because the
   * next stream does not send these events again.
   */
  async #deliver(events: ChannelEvent[]): Promise<boolean> {
    const { frame, missing } = this.roster.accept(events);
    if (missing !== undefined) {
      this.caller.log("warn", "stream skipped entries", missing);
    }
    if (frame.length > 0) {
      await this.queue.put(frame, this.signal);
    }
    return missing === undefined;
  }

  /** recover reports whether to open the next stream immediately, because it differs. */
  async recover(end: StreamEnd): Promise<boolean> {
    if (end.error === presenceChanged) {
      return true;
    }
    const { error } = end;
    const lost = this.#onBoard?.lose(end) ?? false;
    return (await this.#loseRefused(end, lost)) || (!lost && this.#dropPresence(error));
  }

  /**
   * dropPresence releases the presence if the login is over, or if the stream ended with a final
   * error. It reports whether to open the next stream immediately without it. Both then get the
   * errors of their own streams, so the error ends only the one that it is about.
   */
  #dropPresence(error: ParleyError | undefined): boolean {
    const presence = this.#onBoard;
    if (presence === undefined || error === undefined || error.retryable || tokenRefused(error)) {
      return false;
    }
    if (error.reason === "KICKED" || error.reason === "TOKEN_REVOKED") {
      presence.release(error);
      return false;
    }
    this.#refuse(presence);
    return true;
  }

  /** names reports whether an error names a channel that is followed. */
  #names(error: ParleyError): boolean {
    return error.positions.some(({ channelId }) => this.roster.get(channelId)?.active);
  }

  /** refuse releases a presence that the subscription's streams cannot carry. */
  #refuse(presence: PresenceCore): void {
    this.barred = true;
    presence.release();
  }

  /**
   * loseRefused marks the channels for which the server refused a stream as lost. It reports
   * whether to open the next stream immediately without them. Before any stream was live, the
   * refusal is an error for the program instead. presenceLost reports whether the presence lost
   * some of them.
   */
  async #loseRefused(end: StreamEnd, presenceLost: boolean): Promise<boolean> {
    const { error } = end;
    const reason = error === undefined ? undefined : lostReasons.get(error.reason);
    if (presenceLost && (error === undefined || reason === undefined || !this.#names(error))) {
      return true;
    }
    if (error === undefined || reason === undefined || error.positions.length === 0 || !this.#wasLive) {
      return false;
    }
    const frame = this.roster.lose(error.positions, reason);
    if (frame.length === 0) {
      // The channels were removed, or the server names others than requested. The error makes the
      // next stream wait.
      end.error = new ParleyError({
        code: Code.Aborted,
        retryable: true,
        message: "the server refused channels that are not followed",
        cause: error,
      });
      return false;
    }
    this.caller.log("warn", "subscription lost channels", { channels: frame.length, addr: end.node?.addr });
    await this.queue.put(frame, this.signal);
    return true;
  }

  setState(change: StateChange): void {
    this.lifetime.setState(change);
    this.rider?.carrierState(change);
  }
}
