import { toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import {
  type SendMessageRequest,
  SendMessageRequestSchema,
  type SendResult as SentItem,
} from "@parleyhq/api/parley/v1/message_pb.js";
import { InterruptedError } from "./abort.js";
import type { Caller, Scope } from "./caller.js";
import type { Endpoint } from "./endpoint.js";
import { itemError, nodeFailed, ParleyError } from "./error.js";
import type { Outgoing, SendResult } from "./message.js";
import type { CallOptions } from "./options.js";
import { toReceipt, toRequest } from "./send.js";

// The limits of one request. The server accepts 500 items and 2 MiB.
const maxItems = 500;
const maxBytes = 2 * 1024 * 1024 - 64 * 1024;
// The time limit of a batch's attempt, as a multiple of that of another call's attempt.
const batchFactor = 3;

/** Item is a pending message: one without a final result. */
interface Item {
  index: number;
  request: SendMessageRequest;
  /** The encoded size in bytes, including an upper bound of its field header. */
  size: number;
}

/** sendBatch implements Client.sendBatch. */
export async function sendBatch(
  caller: Caller,
  messages: readonly Outgoing[],
  options: CallOptions,
): Promise<SendResult[]> {
  const results: SendResult[] = [];
  const pending: Item[] = [];
  for (const [index, message] of messages.entries()) {
    try {
      const request = toRequest(message);
      // 8 exceeds the size of the tag and the length that precede an item.
      pending.push({ index, request, size: toBinary(SendMessageRequestSchema, request).length + 8 });
    } catch (err) {
      results[index] = { error: err as Error };
    }
  }
  const batch = new Batch(caller, results, pending);
  try {
    await caller.run(options, (scope) => batch.send(scope));
  } catch (err) {
    throw batch.giveUp(err);
  }
  return results;
}

/** Batch is the state of one sendBatch call. */
class Batch {
  readonly #caller: Caller;
  readonly #results: SendResult[];
  /**
   * The pending messages, ascending by index. A request always sends a prefix of them, so that no
   * message overtakes another.
   */
  #pending: Item[];

  constructor(caller: Caller, results: SendResult[], pending: Item[]) {
    this.#caller = caller;
    this.#results = results;
    this.#pending = pending;
  }

  /**
   * send sends requests until no message is pending. It rejects with the error that ended the call.
   */
  async send({ signal, renew }: Scope): Promise<void> {
    let failures = 0;
    let last: ParleyError | undefined;
    while (this.#pending.length > 0) {
      const before = this.#pending.length;
      const { node, error } = await this.#sendPart(signal, batchFactor * this.#caller.limit(failures));
      if (this.#pending.length < before) {
        failures = 0;
        last = undefined;
        renew();
      }
      if (error === undefined) {
        continue;
      }
      if (signal.aborted) {
        throw this.#caller.ended(signal, last ?? error);
      }
      if (!this.#caller.worthRetrying(error)) {
        throw error;
      }
      last = error;
      await this.#caller.pause(signal, "SendMessages", failures, node, error);
      failures++;
    }
  }

  /**
   * giveUp returns the error of the call, with the results of all messages. It sets err as the
   * result of pending messages that have none.
   */
  giveUp(err: unknown): Error {
    const error = err instanceof ParleyError ? err : toInterrupted(err);
    for (const item of this.#pending) {
      this.#results[item.index] ??= { error };
    }
    const results = this.#results;
    return error instanceof ParleyError
      ? error.with({ results })
      : new InterruptedError(error.reason, error.cause as Error | undefined, results);
  }

  /**
   * part returns the longest prefix of the pending messages that fits into one request. It has at
   * least one message.
   */
  #part(): Item[] {
    let size = 0;
    const end = this.#pending.findIndex((item, n) => {
      size += item.size;
      return n === maxItems || (n > 0 && size > maxBytes);
    });
    return end < 0 ? this.#pending : this.#pending.slice(0, end);
  }

  /**
   * sendPart sends one request and removes the messages with a final result from the pending ones.
   * It returns the node that was called, if any, and the error of the request, or else the first
   * retryable error of a message, or else no error.
   */
  async #sendPart(signal: AbortSignal, limit: number): Promise<{ node?: Endpoint; error?: ParleyError }> {
    const part = this.#part();
    const messages = part.map((item) => item.request);
    const outcome = await this.#caller.call(signal, limit, (rpc, options) => rpc.sendMessages({ messages }, options));
    let error = outcome.error;
    if (outcome.error === undefined && outcome.value.results.length !== part.length) {
      error = new ParleyError({
        code: Code.Internal,
        retryable: true,
        message: "the response to a batch has the wrong number of results",
      });
    }
    if (outcome.value === undefined || error !== undefined) {
      if (error !== undefined && !signal.aborted) {
        for (const item of part) {
          this.#results[item.index] = { error };
        }
      }
      return { node: outcome.node, error };
    }
    error = this.#settle(part, outcome.value.results);
    if (nodeFailed(error) && outcome.node !== undefined) {
      this.#caller.endpoints.fail(outcome.node);
    }
    return { node: outcome.node, error };
  }

  /**
   * settle records the results of one request's messages and removes those with a final result from
   * the pending ones. It returns the first retryable error, with the longest retryAfter of all, or
   * undefined if there is none.
   */
  #settle(part: Item[], answers: SentItem[]): ParleyError | undefined {
    const settled = new Set<Item>();
    let failure: ParleyError | undefined;
    let retryAfter = 0;
    for (const [n, item] of part.entries()) {
      const answer = answers[n]?.result;
      if (answer?.case === "sent") {
        this.#results[item.index] = { receipt: toReceipt(this.#caller, item.request.channelId, answer.value) };
        settled.add(item);
        continue;
      }
      const error = itemError(answer?.value);
      this.#results[item.index] = { error };
      if (!this.#caller.worthRetrying(error)) {
        settled.add(item);
        continue;
      }
      failure ??= error;
      retryAfter = Math.max(retryAfter, error.retryAfter);
    }
    this.#pending = this.#pending.filter((item) => !settled.has(item));
    return failure === undefined ? undefined : failure.with({ retryAfter });
  }
}

/** toInterrupted returns err, wrapped in an InterruptedError if it is not one. */
function toInterrupted(err: unknown): InterruptedError {
  return err instanceof InterruptedError ? err : new InterruptedError(err, undefined);
}
