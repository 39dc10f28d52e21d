import { Code } from "@connectrpc/connect";
import { SessionOutcome } from "@parleyhq/api/parley/v1/session_pb.js";
import { onAbort } from "./abort.js";
import type { Caller } from "./caller.js";
import { text } from "./check.js";
import { DeltaSender, roomBytes } from "./delta.js";
import { ClosedError, invalid, ParleyError } from "./error.js";
import { newId } from "./id.js";
import type { ChangeReceipt, Receipt } from "./message.js";
import type { CallOptions } from "./options.js";
import { toChange } from "./send.js";
import { byteLength } from "./utf8.js";

/** The maximum size of a message's content in a session, in bytes of UTF-8. */
const maxContentBytes = 131_072;

const highSurrogateAtEnd = /[\ud800-\udbff]$/;

/**
 * OpenMessage is an open message of a session. Its text is written while it is generated, and
 * subscribers see it at once. Exactly one of complete, cancel and fail closes it.
 *
 * Only the close stores the text. Until then it is sent in pieces, one call at a time, which are
 * retried without a time limit until the message ends. While nothing is written, the message is
 * kept alive. If the program dies, the server closes the message as failed after 60 s.
 *
 * The message ends when the program closes it, when somebody else closed or recalled it, for
 * example a user who cancels the generation, when a later call opened it again, or by another final
 * error. Then stop generating: signal is aborted, and write rejects with the error.
 */
export class OpenMessage {
  /** The receipt of the call that opened the message. */
  readonly receipt: Receipt;

  readonly #caller: Caller;
  readonly #sessionId: string;
  readonly #controller = new AbortController();
  readonly #leave: () => void;
  readonly #sender: DeltaSender;
  /** The client_msg_id of the close. */
  readonly #closeId = newId();
  /** A high surrogate at the end of what was written, whose other half was not written yet. */
  #half = "";
  #writable: WritableStream<string> | undefined;

  /** @internal */
  constructor(caller: Caller, sessionId: string, receipt: Receipt, appendToken: string) {
    this.receipt = receipt;
    this.#caller = caller;
    this.#sessionId = sessionId;
    this.#leave = caller.enter(this.#controller, undefined, () => new ClosedError("open message"));
    this.#sender = new DeltaSender(caller, { sessionId, msgId: receipt.msgId, appendToken }, this.signal);
    if (appendToken === "") {
      // A repeat of the call that opened it, and it was closed since.
      this.#end(closed("it was closed before"));
    }
    this.#sender.run().catch((err) => this.#end(err));
  }

  /** The id of the message. */
  get msgId(): string {
    return this.receipt.msgId;
  }

  /**
   * The signal that is aborted when the message ends, with the error as its reason: a ParleyError
   * such as MESSAGE_CLOSED, MESSAGE_RECALLED or APPEND_SUPERSEDED, or a ClosedError if the client
   * was closed. Pass it to what generates the text.
   */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** True once the message has ended. */
  get ended(): boolean {
    return this.signal.aborted;
  }

  /** The text that was written. */
  get text(): string {
    return this.#sender.text.toString();
  }

  /**
   * write adds text. It resolves when at most 16 KiB are waiting to be sent, and rejects when the
   * message has ended, with the signal's reason. A surrogate pair may be divided between two calls.
   * Text beyond 131,072 bytes in total is refused as a whole, with LIMIT_EXCEEDED, and the message
   * stays open.
   */
  async write(content: string): Promise<void> {
    this.signal.throwIfAborted();
    if (typeof content !== "string") {
      throw invalid("content", "is not a string");
    }
    const joined = this.#half + content;
    const half = highSurrogateAtEnd.exec(joined)?.[0] ?? "";
    const whole = joined.slice(0, joined.length - half.length);
    text(["content", whole]);
    if (this.#sender.text.length + byteLength(joined) > maxContentBytes) {
      throw new ParleyError({
        code: Code.ResourceExhausted,
        reason: "LIMIT_EXCEEDED",
        field: "content",
        limit: maxContentBytes,
        message: `content: at most ${maxContentBytes} bytes`,
      });
    }
    this.#half = half;
    if (whole !== "") {
      this.#sender.add(whole);
    }
    await this.#sender.room();
  }

  /**
   * A stream that writes, for example for pipeTo. Closing it completes the message, and aborting it
   * closes it as failed. The stream errors when the message ends. Its desiredSize is in bytes.
   */
  get writable(): WritableStream<string> {
    this.#writable ??= new WritableStream<string>(
      {
        start: (controller) => {
          if (this.ended) {
            controller.error(this.signal.reason);
          } else {
            onAbort(this.signal, () => controller.error(this.signal.reason));
          }
        },
        write: (content) => this.write(content),
        close: async () => {
          await this.complete();
        },
        abort: async () => {
          await this.fail();
        },
      },
      { highWaterMark: roomBytes, size: byteLength },
    );
    return this.#writable;
  }

  /**
   * complete closes the message with its complete content, which is everything that was written by
   * default.
   *
   * It is retried as Client.send is, and can be repeated with the same content. With another
   * content, or as another of these calls after the first, it rejects with CLIENT_MSG_ID_REUSED. It
   * rejects with MESSAGE_CLOSED if somebody else closed the message, and with MESSAGE_RECALLED if
   * it was recalled. Text that was written and not sent yet is not sent any more. So after a failed
   * call, only a repeat can close the message before the server closes it as failed.
   */
  async complete(content?: string, options: CallOptions = {}): Promise<ChangeReceipt> {
    return this.#close(SessionOutcome.COMPLETE, content ?? this.text + this.#half, options);
  }

  /**
   * cancel closes the message because a user cancelled the generation, with the content so far,
   * which is everything that was written by default. It rejects as complete does.
   */
  async cancel(content?: string, options: CallOptions = {}): Promise<ChangeReceipt> {
    return this.#close(SessionOutcome.CANCELLED, content ?? this.text, options);
  }

  /**
   * fail closes the message because the generation failed, with the content so far, which is
   * everything that was written by default. It rejects as complete does.
   */
  async fail(content?: string, options: CallOptions = {}): Promise<ChangeReceipt> {
    return this.#close(SessionOutcome.FAILED, content ?? this.text, options);
  }

  async #close(outcome: SessionOutcome, content: string, options: CallOptions): Promise<ChangeReceipt> {
    text(["content", content]);
    const { msgId, channelId } = this.receipt;
    const request = { sessionId: this.#sessionId, msgId, outcome, content, clientMsgId: this.#closeId };
    this.#end(closed("this program closed it"));
    const res = await this.#caller.retry("CloseSessionMessage", options, (rpc, opts) =>
      rpc.closeSessionMessage(request, opts),
    );
    return toChange(this.#caller, { ...request, channelId }, res);
  }

  #end(error: unknown): void {
    this.#controller.abort(error);
    this.#leave();
  }
}

function closed(why: string): ParleyError {
  return new ParleyError({
    code: Code.FailedPrecondition,
    reason: "MESSAGE_CLOSED",
    message: `the message is not open: ${why}`,
  });
}
