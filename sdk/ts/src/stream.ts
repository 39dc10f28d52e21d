import { Code, type CallOptions as RpcOptions } from "@connectrpc/connect";
import type { ConnectInfo, ConnectResponse } from "@parleyhq/api/parley/v1/presence_pb.js";
import type { StreamInfo } from "@parleyhq/api/parley/v1/stream_pb.js";
import type { SubscribeResponse } from "@parleyhq/api/parley/v1/subscription_pb.js";
import { link, until } from "./abort.js";
import { authorization, type Caller } from "./caller.js";
import { Alarm, now } from "./clock.js";
import { milliseconds } from "./convert.js";
import type { Endpoint, Rpc } from "./endpoint.js";
import { ParleyError, toError } from "./error.js";
import type { StreamEnd } from "./pacer.js";

/** The heartbeat interval in milliseconds if the server's first frame does not contain one. */
const defaultHeartbeatMs = 15_000;

/** streamError returns the retryable error with which the client leaves a stream on its own. */
export function streamError(code: Code, message: string, unanswered = false): ParleyError {
  return new ParleyError({ code, message, retryable: true, unanswered });
}

/** StreamCall is the part of a stream that depends on the procedure. */
export interface StreamCall<Frame> {
  /** open calls the procedure. */
  open(stream: Stream, rpc: Rpc, options: RpcOptions): AsyncIterable<Frame>;
  /** live is called with the first frame, before deliver. stream.id is set. */
  live(stream: Stream, node: Endpoint): void;
  /**
   * deliver processes a frame. It returns an error if the client has to leave the stream. A frame
   * of an unknown kind only shows that the stream is alive.
   */
  deliver(stream: Stream, frame: Frame): Promise<ParleyError | undefined>;
}

/** Stream is one call of Subscribe or Connect. */
export class Stream {
  /** The server's id of the stream. Empty until the first frame. */
  id = "";

  readonly #caller: Caller;
  readonly #parent: AbortSignal;
  readonly #controller = new AbortController();
  #end: StreamEnd = { token: "", liveFor: 0, failsOver: false };
  #liveSince: number | undefined;
  #frameTimeout: number;

  /** The stream ends when parent is aborted. */
  constructor(caller: Caller, parent: AbortSignal) {
    this.#caller = caller;
    this.#parent = parent;
    this.#frameTimeout = caller.attemptTimeout;
  }

  /** signal is aborted when the stream ends. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** The token with which the stream lives. Empty until it is called. */
  get token(): string {
    return this.#end.token;
  }

  set token(token: string) {
    this.#end.token = token;
  }

  /** The node of the stream. Undefined until it is called. */
  get node(): Endpoint | undefined {
    return this.#end.node;
  }

  /** leave ends the stream with an error. */
  leave(why: ParleyError): void {
    this.#controller.abort(why);
  }

  /** follow opens the stream and reads its frames until it ends. It does not reject. */
  async follow<Frame extends SubscribeResponse | ConnectResponse>(call: StreamCall<Frame>): Promise<StreamEnd> {
    const unlink = link(this.#controller, this.#parent);
    const watch = new Alarm(() =>
      this.leave(
        this.#liveSince === undefined
          ? streamError(Code.Unavailable, "no first frame in time")
          : streamError(Code.Unavailable, "no frame for 2.5 heartbeat intervals"),
      ),
    );
    try {
      await this.#read(call, watch);
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

  async #read<Frame extends SubscribeResponse | ConnectResponse>(call: StreamCall<Frame>, watch: Alarm): Promise<void> {
    const caller = this.#caller;
    this.#end.token = await caller.tokens.get(this.signal);
    watch.set(this.#frameTimeout);
    const node = caller.endpoints.pick();
    this.#end.node = node;
    const dialedAt = now();
    const options = { signal: this.signal, headers: authorization(this.#end.token) };
    const frames = call.open(this, node.rpc, options)[Symbol.asyncIterator]();
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
        call.live(this, node);
      }
      const reconnect = reconnectOf(frame);
      if (reconnect !== undefined) {
        this.#end.advice = milliseconds(reconnect.within);
        return;
      }
      const error = await call.deliver(this, frame);
      if (error !== undefined) {
        this.#end.error = error;
        return;
      }
      watch.set(this.#frameTimeout);
    }
  }

  #first(frame: SubscribeResponse | ConnectResponse, node: Endpoint, dialedAt: number): void {
    this.#liveSince = now();
    const info = infoOf(frame);
    this.#frameTimeout = 2.5 * (milliseconds(info?.heartbeatInterval) || defaultHeartbeatMs);
    this.id = info?.streamId ?? "";
    this.#caller.endpoints.markWorking(node, dialedAt);
  }
}

function infoOf({ frame }: SubscribeResponse | ConnectResponse): StreamInfo | undefined {
  if (frame.case !== "info") {
    return undefined;
  }
  const info: StreamInfo | ConnectInfo = frame.value;
  return info.$typeName === "parley.v1.ConnectInfo" ? info.stream : info;
}

function reconnectOf({ frame }: SubscribeResponse | ConnectResponse) {
  return frame.case === "reconnect" ? frame.value : undefined;
}
