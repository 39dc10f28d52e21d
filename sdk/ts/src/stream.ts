import { Code } from "@connectrpc/connect";
import type { SubscribeResponse } from "@parleyhq/api/parley/v1/message_pb.js";
import { link, until } from "./abort.js";
import { authorization } from "./caller.js";
import { Alarm, now } from "./clock.js";
import { milliseconds } from "./convert.js";
import type { Core } from "./core.js";
import type { Endpoint } from "./endpoint.js";
import { ParleyError, toError } from "./error.js";
import type { StreamEnd } from "./pacer.js";

/** Counts where the server names no interval. */
const defaultHeartbeatMs = 15_000;

/** leaving makes the error with which a subscription leaves a stream by itself. */
function leaving(code: Code, message: string, unanswered = false): ParleyError {
  return new ParleyError({ code, message, retryable: true, unanswered });
}

/** resubscribe makes the error with which a stream is left whose channels may not be those that are followed. */
export function resubscribe(): ParleyError {
  return leaving(Code.Aborted, "a change of channels may not have arrived");
}

/** Stream is one Subscribe call of a subscription. */
export class Stream {
  /** Empty until the first frame. */
  session = "";
  /** Channels that the request asked for and that were removed before the first frame. */
  removed: string[] = [];

  readonly #core: Core;
  readonly #controller = new AbortController();
  #end: StreamEnd = { token: "", lived: 0, moved: false };
  #began: number | undefined;
  #patience: number;

  constructor(core: Core) {
    this.#core = core;
    this.#patience = core.caller.attemptTimeout;
  }

  /** signal is aborted when the stream is left. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** leave ends the stream. */
  leave(why: ParleyError): void {
    this.#controller.abort(why);
  }

  /** follow makes the stream and takes its frames until it ends. It does not reject. */
  async follow(): Promise<StreamEnd> {
    const unlink = link(this.#controller, this.#core.signal);
    const watch = new Alarm(() =>
      this.leave(
        this.#began === undefined
          ? leaving(Code.Unavailable, "no first frame in time")
          : leaving(Code.Unavailable, "no frame for 2.5 heartbeat intervals"),
      ),
    );
    try {
      await this.#read(watch);
    } catch (err) {
      this.#end.error = toError(this.signal.aborted ? this.signal.reason : err);
    } finally {
      watch.close();
      unlink();
      // Whatever ended it: the server must see the end, and the connection must not be kept.
      this.#controller.abort();
    }
    if (this.#began !== undefined) {
      this.#end.lived = now() - this.#began;
    }
    return this.#end;
  }

  async #read(watch: Alarm): Promise<void> {
    const { caller } = this.#core;
    this.#end.token = await caller.tokens.get(this.signal);
    watch.set(this.#patience);
    const node = caller.endpoints.pick();
    this.#end.node = node;
    const tried = now();
    const request = { channels: this.#core.begin(this) };
    const options = { signal: this.signal, headers: authorization(this.#end.token) };
    const frames = node.rpc.subscribe(request, options)[Symbol.asyncIterator]();
    for (;;) {
      const { done, value: frame } = await until(frames.next(), this.signal);
      if (done) {
        this.#end.error = leaving(Code.Unavailable, "the stream ended without a reason");
        return;
      }
      // While the program is slow to take events, the silence is not the server's.
      watch.pause();
      if (this.#began === undefined) {
        this.#first(frame, node, tried);
      }
      if (!(await this.#deliver(frame))) {
        return;
      }
      watch.set(this.#patience);
    }
  }

  #first(frame: SubscribeResponse, node: Endpoint, tried: number): void {
    this.#began = now();
    this.#patience = 2.5 * (milliseconds(frame.session?.heartbeatInterval) || defaultHeartbeatMs);
    this.session = frame.session?.sessionId ?? "";
    this.#core.caller.endpoints.work(node, tried);
    this.#core.live(this, node);
  }

  /**
   * deliver hands a frame's events on. It is false if the stream is at its end; what came before a hole is delivered
   * all the same.
   */
  async #deliver(frame: SubscribeResponse): Promise<boolean> {
    if (!(await this.#core.deliver(frame.events))) {
      this.#end.error = leaving(Code.DataLoss, "the stream skipped entries", true);
      return false;
    }
    if (frame.reconnect !== undefined) {
      this.#end.advice = milliseconds(frame.reconnect.within);
      return false;
    }
    return true;
  }
}
