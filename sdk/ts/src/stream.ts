import { Code } from "@connectrpc/connect";
import type { SubscribeResponse } from "@parleyhq/api/parley/v1/subscription_pb.js";
import { link, until } from "./abort.js";
import { authorization } from "./caller.js";
import { Alarm, now } from "./clock.js";
import { milliseconds } from "./convert.js";
import type { Core } from "./core.js";
import type { Endpoint } from "./endpoint.js";
import { ParleyError, toError } from "./error.js";
import type { StreamEnd } from "./pacer.js";

/** The heartbeat interval in milliseconds if the server's first frame does not contain one. */
const defaultHeartbeatMs = 15_000;

/** streamError returns the retryable error with which a subscription leaves a stream on its own. */
function streamError(code: Code, message: string, unanswered = false): ParleyError {
  return new ParleyError({ code, message, retryable: true, unanswered });
}

/**
 * resubscribe returns the error with which a subscription leaves a stream whose channels may differ
 * from the subscription's.
 */
export function resubscribe(): ParleyError {
  return streamError(Code.Aborted, "a change of channels may not have arrived");
}

/** Stream is one Subscribe call of a subscription. */
export class Stream {
  /** The server's id of the stream. Empty until the first frame. */
  id = "";
  /** The requested channels that were removed before the first frame. */
  removed: string[] = [];

  readonly #core: Core;
  readonly #controller = new AbortController();
  #end: StreamEnd = { token: "", liveFor: 0, failsOver: false };
  #liveSince: number | undefined;
  #frameTimeout: number;

  constructor(core: Core) {
    this.#core = core;
    this.#frameTimeout = core.caller.attemptTimeout;
  }

  /** signal is aborted when the stream ends. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** leave ends the stream with an error. */
  leave(why: ParleyError): void {
    this.#controller.abort(why);
  }

  /** follow opens the stream and reads its frames until it ends. It does not reject. */
  async follow(): Promise<StreamEnd> {
    const unlink = link(this.#controller, this.#core.signal);
    const watch = new Alarm(() =>
      this.leave(
        this.#liveSince === undefined
          ? streamError(Code.Unavailable, "no first frame in time")
          : streamError(Code.Unavailable, "no frame for 2.5 heartbeat intervals"),
      ),
    );
    try {
      await this.#read(watch);
    } catch (err) {
      this.#end.error = toError(this.signal.aborted ? this.signal.reason : err);
    } finally {
      watch.close();
      unlink();
      // Ends the stream on the server and closes its connection.
      this.#controller.abort();
    }
    if (this.#liveSince !== undefined) {
      this.#end.liveFor = now() - this.#liveSince;
    }
    return this.#end;
  }

  async #read(watch: Alarm): Promise<void> {
    const { caller } = this.#core;
    this.#end.token = await caller.tokens.get(this.signal);
    watch.set(this.#frameTimeout);
    const node = caller.endpoints.pick();
    this.#end.node = node;
    const dialedAt = now();
    const request = { channels: this.#core.begin(this) };
    const options = { signal: this.signal, headers: authorization(this.#end.token) };
    const frames = node.rpc.subscribe(request, options)[Symbol.asyncIterator]();
    for (;;) {
      const { done, value: frame } = await until(frames.next(), this.signal);
      if (done) {
        this.#end.error = streamError(Code.Unavailable, "the stream ended without a reason");
        return;
      }
      // While the program is slow to take events, no frame is read. The silence does not mean that
      // the stream is dead.
      watch.pause();
      if (this.#liveSince === undefined) {
        this.#first(frame, node, dialedAt);
      }
      if (!(await this.#deliver(frame))) {
        return;
      }
      watch.set(this.#frameTimeout);
    }
  }

  #first(frame: SubscribeResponse, node: Endpoint, dialedAt: number): void {
    this.#liveSince = now();
    const info = frame.frame.case === "info" ? frame.frame.value : undefined;
    this.#frameTimeout = 2.5 * (milliseconds(info?.heartbeatInterval) || defaultHeartbeatMs);
    this.id = info?.streamId ?? "";
    this.#core.caller.endpoints.markWorking(node, dialedAt);
    this.#core.live(this, node);
  }

  /**
   * deliver delivers a frame's events. It returns false if the subscription has to leave the
   * stream. Events before missing entries are delivered. A frame of an unknown kind only shows that
   * the stream is alive.
   */
  async #deliver({ frame }: SubscribeResponse): Promise<boolean> {
    switch (frame.case) {
      case "events":
        if (!(await this.#core.deliver(frame.value.events))) {
          this.#end.error = streamError(Code.DataLoss, "the stream skipped entries", true);
          return false;
        }
        return true;
      case "reconnect":
        this.#end.advice = milliseconds(frame.value.within);
        return false;
      default:
        return true;
    }
  }
}
