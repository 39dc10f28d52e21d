import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import type { ChannelEvent, ChannelPositionSchema } from "@parleyhq/api/parley/v1/message_pb.js";
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
 * How many frames may wait for the program. A program that is slower than its channels fills them, then the
 * connection's window, and is cut by the server; the subscription then resumes.
 */
const queuedFrames = 4;

/** SubscribeOptions change how a subscription works. */
export interface SubscribeOptions {
  /** Told of each new state, in order. What it throws is not caught. */
  onState?: (change: StateChange) => void;
  /** Bounds the subscription's life, which then ends with the signal's reason. */
  signal?: AbortSignal;
}

/** Core is what keeps a subscription up. */
export class Core {
  readonly roster: Roster;
  readonly queue = new Queue<Queued[]>(queuedFrames);
  /** Held while the stream is asked to change, so that changes reach the server in order. */
  readonly turn = new Turn();
  /** Resolves when nothing of the subscription runs any more. */
  readonly done: Promise<void>;

  state: State = "connecting";
  /** The current stream, or the last one. */
  stream: Stream | undefined;
  /** What ended the subscription. */
  error: unknown;

  readonly #onState: ((change: StateChange) => void) | undefined;
  readonly #controller = new AbortController();
  readonly #work = new Set<Promise<void>>();
  /** True once any stream has been live. */
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

  /** closed is true once the subscription, or its client, was closed by its own side. */
  get closed(): boolean {
    return this.signal.reason instanceof ClosedError;
  }

  /** close ends the subscription; done tells when it has. */
  close(): void {
    this.#controller.abort(new ClosedError());
  }

  /** begin makes stream the current one, and its request from where each channel is. */
  begin(stream: Stream): MessageInitShape<typeof ChannelPositionSchema>[] {
    this.stream = stream;
    return this.roster.begin();
  }

  /** live notes that the stream is up, and asks for what was changed since its request was made. */
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
   * deliver hands events on, and waits while the program is slow. It is false if the stream is not to be trusted. It
   * waits on although the stream is left meanwhile: what has arrived is not asked for again.
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
    // The program gets the subscription before its first state.
    await Promise.resolve();
    try {
      checkStarts(starts);
      for (const start of starts) {
        this.roster.insert(start);
      }
      this.error = await this.#keepUp();
    } catch (err) {
      this.error = err;
    }
    this.stream = undefined;
    if (this.signal.aborted) {
      this.error = this.signal.reason;
    }
    // Ends what may still be at work.
    this.#controller.abort(this.error);
    await Promise.all(this.#work);
    const error = this.error instanceof Error ? this.error : new Error(String(this.error));
    this.#setState({ state: "ended", error });
    this.queue.close();
  }

  /** keepUp keeps a stream up until a failure is final, which it gives, or rejects when the subscription ends. */
  async #keepUp(): Promise<ParleyError | undefined> {
    const pacer = new Pacer(this.caller);
    for (;;) {
      this.#setState({ state: "connecting" });
      const end = await new Stream(this).follow();
      this.signal.throwIfAborted();
      if (await this.#passOverRefused(end)) {
        continue;
      }
      this.#judge(end);
      const wait = pacer.next(end);
      if (wait === undefined) {
        return end.error;
      }
      const addr = end.node?.addr;
      this.caller.log("warn", "subscription waits for its next stream", { addr, wait: total(wait), error: end.error });
      this.#setState({ state: "waiting", error: end.error, wait: total(wait), addr });
      await sleep(wait, this.signal, () => this.caller.waits.hurried());
    }
  }

  /** judge draws from a stream's end whether its node works, and notes whether the next stream goes elsewhere. */
  #judge(end: StreamEnd): void {
    if (end.node === undefined) {
      return;
    }
    if (end.advice !== undefined || nodeFailed(end.error)) {
      this.caller.endpoints.fail(end.node);
    }
    end.moved = this.caller.endpoints.elsewhere(end.node);
  }

  /**
   * passOverRefused loses the channels for which a stream was refused, and reports whether the next stream is to be
   * made at once without them. The first stream of a subscription is not made good like that: its refusal is for the
   * program.
   */
  async #passOverRefused(end: StreamEnd): Promise<boolean> {
    const { error } = end;
    if (error?.reason !== "NOT_MEMBER" || error.positions.length === 0 || !this.#wasLive) {
      return false;
    }
    const frame = this.roster.lose(error.positions);
    if (frame.length === 0) {
      // Removed meanwhile, or the server names what it was not asked for: with a wait, so that it can't make us spin.
      end.error = new ParleyError({
        code: Code.Aborted,
        retryable: true,
        message: "refused for channels that are not followed",
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
      // The program's own mistake: it must be seen, but not take the subscription along.
      queueMicrotask(() => {
        throw err;
      });
    }
  }
}
