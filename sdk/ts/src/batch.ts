import { toBinary } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import {
  type SendMessageRequest,
  SendMessageRequestSchema,
  type SendResult as SentItem,
} from "@parleyhq/api/parley/v1/message_pb.js";
import { InterruptedError } from "./abort.js";
import type { Caller } from "./caller.js";
import type { Endpoint } from "./endpoint.js";
import { itemError, nodeFailed, ParleyError } from "./error.js";
import type { Outgoing, SendResult } from "./message.js";
import { toReceipt, toRequest } from "./send.js";

// What bounds one request; the server takes 500 items and 2 MiB.
const maxItems = 500;
const maxBytes = 2 * 1024 * 1024 - 64 * 1024;
// How much longer than another call one of a batch may take.
const patience = 3;

/** Item is a message that is neither stored nor refused for good. */
interface Item {
  index: number;
  request: SendMessageRequest;
  /** Encoded, with what precedes it. */
  size: number;
}

/** sendBatch sends messages in order, part after part, and gives a result for each. */
export async function sendBatch(
  caller: Caller,
  messages: readonly Outgoing[],
  signal: AbortSignal | undefined,
): Promise<SendResult[]> {
  const results: SendResult[] = [];
  const pending: Item[] = [];
  for (const [index, message] of messages.entries()) {
    try {
      const request = toRequest(message);
      // 8 is more than the tag and the length that precede an item.
      pending.push({ index, request, size: toBinary(SendMessageRequestSchema, request).length + 8 });
    } catch (err) {
      results[index] = { error: err as Error };
    }
  }
  const batch = new Batch(caller, results, pending);
  try {
    await caller.run(signal, (scope) => batch.send(scope));
  } catch (err) {
    throw batch.giveUp(err);
  }
  return results;
}

/** Batch is a sendBatch under way. */
class Batch {
  readonly #caller: Caller;
  readonly #results: SendResult[];
  /** Ascending by index. What a request sends is always the first part, so that nothing overtakes. */
  #pending: Item[];

  constructor(caller: Caller, results: SendResult[], pending: Item[]) {
    this.#caller = caller;
    this.#results = results;
    this.#pending = pending;
  }

  /** send sends until nothing is pending, or rejects with what ended the call. */
  async send(signal: AbortSignal): Promise<void> {
    let failures = 0;
    while (this.#pending.length > 0) {
      const before = this.#pending.length;
      const { node, error } = await this.#sendPart(signal, patience * this.#caller.limit(failures));
      if (this.#pending.length < before) {
        failures = 0;
      }
      if (error === undefined) {
        continue;
      }
      if (signal.aborted) {
        throw this.#caller.ended(signal, error);
      }
      if (!this.#caller.worthRetrying(error)) {
        throw error;
      }
      await this.#caller.pause(signal, "SendMessages", failures, node, error);
      failures++;
    }
  }

  /** giveUp answers what is pending and has no answer yet, and gives what the call rejects with. */
  giveUp(err: unknown): Error {
    const error = err instanceof ParleyError ? err : wholly(err);
    for (const item of this.#pending) {
      this.#results[item.index] ??= { error };
    }
    const results = this.#results;
    return error instanceof ParleyError
      ? error.with({ results })
      : new InterruptedError(error.reason, error.cause as Error | undefined, results);
  }

  /** part gives the first pending messages, as many as one request may hold. */
  #part(): Item[] {
    let size = 0;
    const end = this.#pending.findIndex((item, n) => {
      size += item.size;
      return n === maxItems || (n > 0 && size > maxBytes);
    });
    return end < 0 ? this.#pending : this.#pending.slice(0, end);
  }

  /**
   * sendPart makes one request and takes the settled messages from the pending ones. Its error is the first failure
   * that may pass, or that of the request as a whole.
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
        message: "a batch was answered with too few or too many results",
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

  /** settle takes the answers of a part, in order. */
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

/** wholly makes one error of whatever a signal may have ended the call with. */
function wholly(err: unknown): InterruptedError {
  return err instanceof InterruptedError ? err : new InterruptedError(err, undefined);
}
