import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import type { ChannelEvent, ChannelPositionSchema } from "@parleyhq/api/parley/v1/subscription_pb.js";
import type { Caller } from "./caller.js";
import { sleep, total } from "./clock.js";
import type { Endpoint } from "./endpoint.js";
import { ClosedError, nodeFailed, ParleyError } from "./error.js";
import type { State, StateChange } from "./event.js";
import { Pacer, type StreamEnd } from "./pacer.js";
import { Queue, Turn } from "./queue.js";
import { type Queued, Roster } from "./roster.js";
import { checkStarts, type Start } from "./start.js";
import { Stream } from "./stream.js";
import { catchUp } from "./update.js";

/**
 * The maximum number of queued frames. A program that is slower than its channels fills this queue
 * and then the connection's flow-control window. The server then ends the stream, and the
 * subscription resumes.
 */
const queuedFrames = 4;

/** SubscribeOptions are the options of a subscription. */
export interface SubscribeOptions {
  /**
   * Called with each new state, in order. An error that it throws is reported as an uncaught one
   * and does not end the subscription.
   */
  onState?: (change: StateChange) => void;
  /** Ends the subscription when it is aborted, with the signal's reason. */
  signal?: AbortSignal;
}

/** Core runs a subscription: it keeps a stream open and queues its events. */
export class Core {
  readonly roster: Roster;
  readonly queue = new Queue<Queued[]>(queuedFrames);
  /** Held during a change of the stream's channels, so that changes reach the server in order. */
  readonly turn = new Turn();
  /** Resolves when all work of the subscription has stopped. */
  readonly done: Promise<void>;

  state: State = "connecting";
  /** The current stream. Undefined between two streams. */
  stream: Stream | undefined;
  /** The error that ended the subscription. Undefined until then. */
  error: unknown;

  readonly #onState: ((change: StateChange) => void) | undefined;
  readonly #controller = new AbortController();
  readonly #work = new Set<Promise<void>>();
  /** True once any stream of the subscription got its first frame. */
  #wasLive = false;

  constructor(
    readonly caller: Caller,
    starts: readonly Start[],
    options: SubscribeOptions,
  ) {
    this.roster = new Roster(caller.heads);
    this.#onState = options.onState;
    const leave = caller.enter(this.#controller, options.signal, () => new ClosedError());
    this.done = this.#run(starts).finally(leave);
  }

  /** signal is aborted when the subscription ends. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** closed reports whether the program closed the subscription or its client. */
  get closed(): boolean {
    return this.signal.reason instanceof ClosedError;
  }

  /** close ends the subscription; done resolves when it has ended. */
  close(): void {
    this.#controller.abort(new ClosedError());
  }

  /**
   * begin makes stream the current one, and returns the channels of its request with their
   * positions.
   */
  begin(stream: Stream): MessageInitShape<typeof ChannelPositionSchema>[] {
    this.stream = stream;
    return this.roster.begin();
  }

  /**
   * live sets the state to live. It also starts to send the channel changes that were made after
   * the stream's request, and does not wait for them.
   */
  live(stream: Stream, node: Endpoint): void {
    this.#wasLive = true;
    const late = stream.removed.length > 0 || this.roster.late().length > 0;
    this.#setState({ state: "live", addr: node.addr });
    if (late) {
      const work = catchUp(this, stream).finally(() => this.#work.delete(work));
      this.#work.add(work);
    }
  }

  /**
   * deliver queues events, and waits while the queue is full. It returns false if entries are
   * missing. It also waits after the stream was left, because the next stream does not send these
   * events again.
   */
  async deliver(events: ChannelEvent[]): Promise<boolean> {
    const { frame, missing } = this.roster.accept(events);
    if (missing !== undefined) {
      this.caller.log("warn", "stream skipped entries", missing);
    }
    if (frame.length > 0) {
      await this.queue.put(frame, this.signal);
    }
    return missing === undefined;
  }

  async #run(starts: readonly Start[]): Promise<void> {
    // Deferred, so that the program has the subscription before the first call of onState.
    await Promise.resolve();
    try {
      checkStarts(starts);
      for (const start of starts) {
        this.roster.insert(start);
      }
      this.error = await this.#openStreams();
    } catch (err) {
      this.error = err;
    }
    this.stream = undefined;
    if (this.signal.aborted) {
      this.error = this.signal.reason;
    }
    // Ends the channel changes that are still being sent.
    this.#controller.abort(this.error);
    await Promise.all(this.#work);
    const error = this.error instanceof Error ? this.error : new Error(String(this.error));
    this.#setState({ state: "ended", error });
    this.queue.close();
  }

  /**
   * openStreams opens one stream after another. It returns the final error of a stream, and rejects
   * with the signal's reason when the subscription ends.
   */
  async #openStreams(): Promise<ParleyError | undefined> {
    const pacer = new Pacer(this.caller);
    for (;;) {
      this.#setState({ state: "connecting" });
      const end = await new Stream(this).follow();
      this.stream = undefined;
      this.signal.throwIfAborted();
      if (await this.#loseRefused(end)) {
        continue;
      }
      this.#recordStreamEnd(end);
      const wait = pacer.next(end);
      if (wait === undefined) {
        return end.error;
      }
      const addr = end.node?.addr;
      this.caller.log("warn", "reconnecting", { stream: "subscription", addr, wait: total(wait), error: end.error });
      this.#setState({ state: "waiting", error: end.error, wait: total(wait), addr });
      await sleep(wait, this.signal, () => this.caller.waits.wakeDelay());
    }
  }

  /** recordStreamEnd records whether the stream's node failed, and sets end.failsOver. */
  #recordStreamEnd(end: StreamEnd): void {
    if (end.node === undefined) {
      return;
    }
    if (end.advice !== undefined || nodeFailed(end.error)) {
      this.caller.endpoints.fail(end.node);
    }
    end.failsOver = this.caller.endpoints.hasOther(end.node);
  }

  /**
   * loseRefused marks the channels for which the server refused a stream as lost. It reports
   * whether to open the next stream immediately without them. Before any stream was live, the
   * refusal is an error for the program instead.
   */
  async #loseRefused(end: StreamEnd): Promise<boolean> {
    const { error } = end;
    if (error?.reason !== "NOT_MEMBER" || error.positions.length === 0 || !this.#wasLive) {
      return false;
    }
    const frame = this.roster.lose(error.positions);
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

  #setState(change: StateChange): void {
    this.state = change.state;
    try {
      this.#onState?.(change);
    } catch (err) {
      // Report an error of the program without ending the subscription.
      queueMicrotask(() => {
        throw err;
      });
    }
  }
}
