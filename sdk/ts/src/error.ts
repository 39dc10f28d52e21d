import { Code, ConnectError } from "@connectrpc/connect";
import { codeFromString, codeToString } from "@connectrpc/connect/protocol-connect";
import { type ErrorDetail, ErrorDetailSchema, ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type { ItemError } from "@parleyhq/api/parley/v1/message_pb.js";
import { milliseconds, named } from "./convert.js";
import type { SendResult } from "./message.js";
import type { Position } from "./position.js";

/** firstRetryable is the lowest ErrorReason that is retryable. A reason that this SDK does not know is judged by it. */
const firstRetryable = 100;

/**
 * Reason is why a call failed, for programs: the name in error.proto without its prefix, `REASON_123` for a number that
 * this SDK does not know, empty for a failure that Parley itself did not raise (the network, a proxy, the client).
 */
export type Reason = "" | Exclude<keyof typeof ErrorReason, "UNSPECIFIED"> | `REASON_${number}`;

/** ErrorInit is what a ParleyError is made of; what is absent is empty. */
export interface ErrorInit {
  code?: Code;
  reason?: Reason;
  /** Where it is absent, the reason decides. */
  retryable?: boolean;
  message?: string;
  field?: string;
  limit?: number;
  retryAfter?: number;
  requestId?: string;
  positions?: Position[];
  results?: SendResult[];
  cause?: unknown;
  /** @internal */
  unanswered?: boolean;
}

/** ParleyError is a failed call, a failed item of a batch, or the end of a subscription. Switch on its reason. */
export class ParleyError extends Error {
  /** The status code, Connect's. */
  readonly code: Code;
  readonly reason: Reason;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  /** The text for people alone; message has code, reason and request id besides. */
  readonly rawMessage: string;
  /** The request's field at fault, as a path; empty if none is. */
  readonly field: string;
  /** The limit that was broken, in the field's unit; 0 if none was. */
  readonly limit: number;
  /** The least time to wait before a retry, in milliseconds; 0 says nothing. */
  readonly retryAfter: number;
  /** Finds the request in the server's log; may be empty. */
  readonly requestId: string;
  /** Where a cut stream stood, by what the server had sent; with NOT_MEMBER from subscribe, the channels refused. */
  readonly positions: Position[];
  /** From sendBatch alone: what had become of each message when the call as a whole ended. */
  readonly results: SendResult[] | undefined;
  /**
   * True if the failure arose on the client's side, for want of a sound answer.
   * @internal
   */
  readonly unanswered: boolean;

  constructor(init: ErrorInit) {
    super(describe(init), init.cause === undefined ? undefined : { cause: init.cause });
    this.name = "ParleyError";
    this.code = init.code ?? Code.Unknown;
    this.reason = init.reason ?? "";
    this.retryable = init.retryable ?? reasonNumber(this.reason) >= firstRetryable;
    this.rawMessage = init.message ?? "";
    this.field = init.field ?? "";
    this.limit = init.limit ?? 0;
    this.retryAfter = init.retryAfter ?? 0;
    this.requestId = init.requestId ?? "";
    this.positions = init.positions ?? [];
    this.results = init.results;
    this.unanswered = init.unanswered ?? false;
  }

  /**
   * A copy with other properties.
   * @internal
   */
  with(changes: ErrorInit): ParleyError {
    return new ParleyError({ ...this, message: this.rawMessage, cause: this.cause, ...changes });
  }
}

/** ClosedError ends a subscription that was closed by its own side, and what waits for it. */
export class ClosedError extends Error {
  constructor() {
    super("the subscription was closed");
    this.name = "ClosedError";
  }
}

function describe(init: ErrorInit): string {
  let text = codeToString(init.code ?? Code.Unknown);
  if (init.reason) {
    text += ` (${init.reason})`;
  }
  if (init.message) {
    text += `: ${init.message}`;
  }
  return init.requestId ? `${text} [request ${init.requestId}]` : text;
}

function reasonNumber(reason: Reason): number {
  const known = ErrorReason[reason as keyof typeof ErrorReason];
  return known ?? (Number(reason.slice("REASON_".length)) || 0);
}

/** toError makes a ParleyError of what a generated client threw. */
export function toError(err: unknown): ParleyError {
  if (err instanceof ParleyError) {
    return err;
  }
  if (!(err instanceof ConnectError)) {
    const message = err instanceof Error ? err.message : String(err);
    return new ParleyError({ code: Code.Unavailable, message, retryable: true, unanswered: true, cause: err });
  }
  if (err.cause instanceof ParleyError) {
    // What this SDK aborted its own call with.
    return err.cause;
  }
  const init: ErrorInit = {
    code: err.code,
    message: err.rawMessage,
    requestId: err.metadata.get("x-request-id") ?? "",
    cause: err,
  };
  const detail = err.findDetails(ErrorDetailSchema)[0];
  if (detail !== undefined) {
    return new ParleyError({ ...init, ...detailed(detail, init.requestId) });
  }
  if (err.isWireError) {
    return new ParleyError({ ...init, retryable: passing(err.code) });
  }
  // The client's own side: fetch tells a broken connection by a TypeError of any text, which has no code. What can't
  // get better is an answer too large to read and a call that the server does not have.
  return new ParleyError({
    ...init,
    code: err.code === Code.Unknown ? Code.Unavailable : err.code,
    retryable: err.code !== Code.ResourceExhausted && err.code !== Code.Unimplemented,
    unanswered: true,
  });
}

/** passing says which codes may get better by themselves where nothing else is known, as from a proxy. */
function passing(code: Code): boolean {
  return code === Code.Unavailable || code === Code.DeadlineExceeded || code === Code.Aborted || code === Code.Canceled;
}

function detailed(detail: ErrorDetail, requestId: string | undefined): ErrorInit {
  return {
    reason: named(ErrorReason, detail.reason, "REASON") as Reason,
    retryable: detail.reason === ErrorReason.UNSPECIFIED ? detail.retryable : detail.reason >= firstRetryable,
    field: detail.field,
    limit: Number(detail.limit),
    retryAfter: milliseconds(detail.retryAfter),
    requestId: detail.requestId || requestId,
    positions: detail.positions.map((p) => ({ channelId: p.channelId, seq: Number(p.seq), epoch: p.epoch })),
  };
}

/** itemError makes a ParleyError of a batch item's. */
export function itemError(item: ItemError | undefined): ParleyError {
  const code = codeFromString(item?.code ?? "") ?? Code.Unknown;
  const init: ErrorInit = { code, message: item?.message, retryable: passing(code) };
  return new ParleyError(item?.detail === undefined ? init : { ...init, ...detailed(item.detail, "") });
}

/** tokenError makes the error of a token source that failed: final if it says that the token will not come. */
export function tokenError(err: unknown): ParleyError {
  const final = err instanceof ParleyError && err.reason === "TOKEN_INVALID";
  const message = `get token: ${err instanceof Error ? err.message : String(err)}`;
  return new ParleyError({
    code: Code.Unauthenticated,
    reason: final ? "TOKEN_INVALID" : "",
    retryable: !final,
    message,
    cause: err,
  });
}

/** invalid makes the error of a field that the client refuses before it is sent. */
export function invalid(field: string, message: string): ParleyError {
  return new ParleyError({
    code: Code.InvalidArgument,
    reason: "INVALID_FIELD",
    field,
    message: `${field}: ${message}`,
  });
}

/** refused reports whether the server refused the token. */
export function refused(err: ParleyError | undefined): boolean {
  return err !== undefined && (err.code === Code.Unauthenticated || err.reason === "TOKEN_EXPIRED");
}

/** nodeFailed reports whether the failure is one that another node may not have. */
export function nodeFailed(err: ParleyError | undefined): boolean {
  if (err === undefined || !err.retryable) {
    return false;
  }
  return (
    err.unanswered || err.code === Code.Unavailable || err.code === Code.DeadlineExceeded || err.code === Code.Internal
  );
}
