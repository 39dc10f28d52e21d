import { Code } from "@connectrpc/connect";
import { MessageStatus } from "@parleyhq/api/parley/v1/channel_pb.js";
import { onAbort, until } from "./abort.js";
import type { Caller } from "./caller.js";
import { now, sleep, unref } from "./clock.js";
import { integer } from "./convert.js";
import { ParleyError } from "./error.js";
import { deferred } from "./queue.js";
import { GrowingText, type Piece } from "./utf8.js";

/**
 * The minimum time between the starts of two calls, in milliseconds, unless eagerBytes are waiting.
 */
const intervalMs = 25;
/** The number of waiting bytes with which the next call does not wait for intervalMs. */
const eagerBytes = 4_096;
/** The maximum number of bytes in one call. */
const maxPieceBytes = 16_384;
/** The time after the last call, in milliseconds, after which an empty delta is sent. */
const keepAliveMs = 15_000;
/** The number of waiting bytes up to which room resolves. */
export const roomBytes = 16_384;
/** The longest timer, in milliseconds. Timers may stop while the machine sleeps. */
const sliceMs = 1_000;

/** Target identifies an open message and the attempt to generate it. */
export interface Target {
  sessionId: string;
  msgId: string;
  appendToken: string;
}

/**
 * DeltaSender sends the text of an open message while it is generated. One call is in flight at
 * most; text that is added meanwhile is joined into the next one.
 */
export class DeltaSender {
  readonly text = new GrowingText();
  readonly #caller: Caller;
  readonly #target: Target;
  /** The sender stops when the signal is aborted. */
  readonly #signal: AbortSignal;
  /** The number of bytes that the server has. */
  #sent = 0;
  /** The highest value of #sent so far. */
  #most = 0;
  /** When the last call started, by now(). */
  #began = Number.NEGATIVE_INFINITY;
  #added = deferred();
  #taken = deferred();

  constructor(caller: Caller, target: Target, signal: AbortSignal) {
    this.#caller = caller;
    this.#target = target;
    this.#signal = signal;
  }

  get #waiting(): number {
    return this.text.length - this.#sent;
  }

  /** add adds text, to be sent. */
  add(text: string): void {
    this.text.append(text);
    this.#added.resolve();
  }

  /**
   * room resolves when at most roomBytes bytes are waiting. It rejects with the signal's reason.
   */
  async room(): Promise<void> {
    while (this.#waiting > roomBytes) {
      await until(this.#taken.promise, this.#signal);
    }
  }

  /**
   * run sends until the message ends, and rejects with the error that ended it: the signal's reason
   * or a final error of a call.
   */
  async run(): Promise<never> {
    this.#began = now() - intervalMs;
    let resends = 0;
    for (;;) {
      await this.#due();
      const piece = this.text.piece(this.#sent, maxPieceBytes);
      try {
        await this.#send(piece);
        if (this.#sent > this.#most) {
          this.#most = this.#sent;
          resends = 0;
        }
      } catch (err) {
        const has = err instanceof ParleyError && err.code === Code.OutOfRange ? err.limit : piece.offset;
        if (this.#signal.aborted || has >= piece.offset) {
          throw err;
        }
        this.#sent = has;
        // At once only for the first time without progress, so that no server can make it spin.
        const wait = resends === 0 ? { retryAfter: 0, backoff: 0 } : this.#caller.waits.draw(resends - 1, 0);
        resends++;
        await sleep(wait, this.#signal, () => this.#caller.waits.wakeDelay());
      }
    }
  }

  async #send(piece: Piece): Promise<void> {
    const request = { ...this.#target, offset: BigInt(piece.offset), text: piece.text };
    this.#began = now();
    // Without a time limit, as a subscription: the message ends by its own rules.
    const res = await this.#caller.retry("AppendSessionDelta", { timeout: 0, signal: this.#signal }, (rpc, opts) =>
      rpc.appendSessionDelta(request, opts),
    );
    if (res.status !== MessageStatus.OPEN) {
      throw ended(res.status);
    }
    // A server that has less than was sent gets the rest again.
    this.#sent = Math.min(piece.offset + piece.bytes, integer(res.length));
    this.#taken.resolve();
    this.#taken = deferred();
  }

  /** due waits until the next call is due. */
  async #due(): Promise<void> {
    for (;;) {
      this.#signal.throwIfAborted();
      const waiting = this.#waiting;
      const wait = waiting > 0 ? intervalMs : keepAliveMs;
      const rest = waiting >= eagerBytes ? 0 : this.#began + wait - now();
      if (rest <= 0) {
        return;
      }
      this.#added = deferred();
      await this.#pause(Math.min(rest, sliceMs), waiting === 0);
    }
  }

  /** pause waits for at most ms milliseconds. Added text and the signal end it. */
  async #pause(ms: number, idle: boolean): Promise<void> {
    const timer = setTimeout(() => this.#added.resolve(), ms);
    if (idle) {
      unref(timer); // A message that is only kept alive does not keep a Node process alive.
    }
    const forget = onAbort(this.#signal, () => this.#added.resolve());
    await this.#added.promise;
    clearTimeout(timer);
    forget();
  }
}

/** ended returns the error of a message that is no longer open. */
function ended(status: MessageStatus): ParleyError {
  return new ParleyError({
    code: Code.FailedPrecondition,
    reason: status === MessageStatus.RECALLED ? "MESSAGE_RECALLED" : "MESSAGE_CLOSED",
    message: `the message is no longer open: ${(MessageStatus[status] ?? String(status)).toLowerCase()}`,
  });
}
