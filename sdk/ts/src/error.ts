import { Code, ConnectError } from "@connectrpc/connect";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import {
  type ErrorDetail,
  ErrorDetailSchema,
  ErrorReason,
  type ItemError,
  KickCause as KickCauses,
  type Kick as Kicks,
} from "@parleyhq/api/parley/v1/error_pb.js";
import { milliseconds, named } from "./convert.js";
import type { SendResult } from "./message.js";
import { type Platform, platformName } from "./platform.js";
import type { Position } from "./position.js";

/**
 * firstRetryable is the lowest number of a retryable ErrorReason. Lower ones are final. This also
 * holds for reasons that this SDK does not know.
 */
const firstRetryable = 100;

/**
 * Reason is the machine-readable reason of an error: the name in error.proto without its prefix, or
 * `REASON_123` for a number that this SDK does not know. It is empty for errors without one, such
 * as those of the network or of a proxy.
 */
export type Reason = "" | Exclude<keyof typeof ErrorReason, "UNSPECIFIED"> | `REASON_${number}`;

/**
 * KickCause is why a login or a stream ended: the name in error.proto without its prefix, or
 * `CAUSE_7` for a number that this SDK does not know.
 */
export type KickCause = "" | Exclude<keyof typeof KickCauses, "UNSPECIFIED"> | `CAUSE_${number}`;

/** Kick describes what ended a login or a stream. */
export interface Kick {
  cause: KickCause;
  /** The device that replaced the login. Empty, like the next two, with ADMIN. */
  deviceId: string;
  /** The platform of that device. */
  platform: Platform;
  /** The connection that replaced the login. */
  connectionId: string;
  /** With ADMIN: what the operator gave as the reason, which may be empty. */
  reason: string;
}

/**
 * ErrorInit holds the properties of a new ParleyError. Properties that are not set are empty; the
 * default code is Unknown.
 */
export interface ErrorInit {
  code?: Code;
  reason?: Reason;
  /** The default is determined by the reason's number. */
  retryable?: boolean;
  message?: string;
  field?: string;
  limit?: number;
  retryAfter?: number;
  requestId?: string;
  positions?: Position[];
  kick?: Kick;
  userIds?: string[];
  results?: SendResult[];
  cause?: unknown;
  /** @internal */
  unanswered?: boolean;
  /** @internal */
  ofStream?: boolean;
}

/**
 * ParleyError is the error of a call, of an item of a batch, or of a subscription. Programs switch
 * on its reason.
 */
export class ParleyError extends Error {
  /** The Connect status code. */
  readonly code: Code;
  readonly reason: Reason;
  /** Whether the same call may succeed later. */
  readonly retryable: boolean;
  /**
   * The human-readable description. message also contains the code, the reason and the request id.
   */
  readonly rawMessage: string;
  /**
   * The path of the invalid field in the request, such as `messages[3].content`. Empty if no field
   * is at fault.
   */
  readonly field: string;
  /** The limit that was exceeded, in the field's unit (bytes, items, a seq). 0 if none was. */
  readonly limit: number;
  /**
   * The minimum time to wait before a retry, in milliseconds. 0 if the server does not ask for one.
   */
  readonly retryAfter: number;
  /** The id of the request in the server's log. Empty if it is not known. */
  readonly requestId: string;
  /**
   * If the server ended a stream: the last position that it sent, for each channel. With
   * NOT_MEMBER: the refused channels. Otherwise empty.
   */
  readonly positions: Position[];
  /** With KICKED: what ended the stream. Otherwise undefined. */
  readonly kick: Kick | undefined;
  /** With NO_SHARED_CHANNEL: the users that were refused, up to the first 50. Otherwise empty. */
  readonly userIds: string[];
  /** The result of each message when the call ended. Set only by sendBatch. */
  readonly results: SendResult[] | undefined;
  /**
   * True if the client raised the error because it got no valid response.
   * @internal
   */
  readonly unanswered: boolean;
  /**
   * True if the error is about the node of a stream, and another node may have answered.
   * @internal
   */
  readonly ofStream: boolean;

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
    this.kick = init.kick;
    this.userIds = init.userIds ?? [];
    this.results = init.results;
    this.unanswered = init.unanswered ?? false;
    this.ofStream = init.ofStream ?? false;
  }

  /**
   * Returns a copy with changed properties.
   * @internal
   */
  with(changes: ErrorInit): ParleyError {
    return new ParleyError({ ...this, message: this.rawMessage, cause: this.cause, ...changes });
  }
}

/**
 * ClosedError is the error of a subscription or a presence after the program closed it or its
 * client, and of an open message after the program closed the client. Calls that wait for it reject
 * with this error.
 */
export class ClosedError extends Error {
  /** @internal */
  constructor(what: "subscription" | "presence" | "open message") {
    super(`the ${what} was closed`);
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

/** toError converts an error of a generated client to a ParleyError. */
export function toError(err: unknown): ParleyError {
  if (err instanceof ParleyError) {
    return err;
  }
  if (!(err instanceof ConnectError)) {
    const message = err instanceof Error ? err.message : String(err);
    return new ParleyError({ code: Code.Unavailable, message, retryable: true, unanswered: true, cause: err });
  }
  if (err.cause instanceof ParleyError) {
    // This SDK aborted its own call with this error.
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
    return new ParleyError({ ...init, ...fromDetail(detail, init.requestId) });
  }
  if (fromServer(err)) {
    return new ParleyError({ ...init, retryable: retryableCode(err.code) });
  }
  // The client raised the error. fetch reports a broken connection as a TypeError without a code.
  // Two errors are final: a response that is too large to read, and a procedure that the server
  // does not implement.
  return new ParleyError({
    ...init,
    code: err.code === Code.Unknown ? Code.Unavailable : err.code,
    retryable: err.code !== Code.ResourceExhausted && err.code !== Code.Unimplemented,
    unanswered: true,
  });
}

// The codes that Connect's client never raises on its own. It uses the others also for a broken
// connection or a truncated response.
const serverOnlyCodes: readonly Code[] = [
  Code.NotFound,
  Code.AlreadyExists,
  Code.PermissionDenied,
  Code.FailedPrecondition,
  Code.Aborted,
  Code.OutOfRange,
  Code.DataLoss,
  Code.Unauthenticated,
];

/**
 * fromServer reports whether the server or a proxy sent the error. Connect 2.1 does not report it,
 * so the code decides.
 */
function fromServer(err: { code: Code; isWireError?: boolean }): boolean {
  return err.isWireError ?? serverOnlyCodes.includes(err.code);
}

/**
 * retryableCode reports whether an error without a detail, for example from a proxy, is retryable
 * according to its code.
 */
function retryableCode(code: Code): boolean {
  return code === Code.Unavailable || code === Code.DeadlineExceeded || code === Code.Aborted || code === Code.Canceled;
}

function fromDetail(detail: ErrorDetail, requestId: string | undefined): ErrorInit {
  return {
    reason: named(ErrorReason, detail.reason, "REASON") as Reason,
    retryable: detail.reason === ErrorReason.UNSPECIFIED ? detail.retryable : detail.reason >= firstRetryable,
    field: detail.field,
    limit: Number(detail.limit),
    retryAfter: milliseconds(detail.retryAfter),
    requestId: detail.requestId || requestId,
    positions: detail.positions.map((p) => ({ channelId: p.channelId, seq: Number(p.seq), epoch: p.epoch })),
    kick: detail.kick === undefined ? undefined : toKick(detail.kick),
    userIds: detail.userIds,
  };
}

function toKick({ cause, deviceId, platform, connectionId, reason }: Kicks): Kick {
  return {
    cause: named(KickCauses, cause, "CAUSE") as KickCause,
    deviceId,
    platform: platformName(platform),
    connectionId,
    reason,
  };
}

/** itemError converts the error of one item of a batch. */
export function itemError(item: ItemError | undefined): ParleyError {
  // StatusCode has gRPC's numbers, and so has Connect's Code.
  const number: number = item?.code ?? 0;
  const code = number in Code ? (number as Code) : Code.Unknown;
  const init: ErrorInit = { code, message: item?.message, retryable: retryableCode(code) };
  return new ParleyError(item?.detail === undefined ? init : { ...init, ...fromDetail(item.detail, "") });
}

/**
 * lossError returns why the server stopped following the presence of a channel. It is undefined if
 * the membership ended.
 */
export function lossError(reason: ErrorReason): ParleyError | undefined {
  if (reason === ErrorReason.UNSPECIFIED || reason === ErrorReason.NOT_MEMBER) {
    return undefined;
  }
  return new ParleyError({
    code: reason === ErrorReason.CHANNEL_NOT_FOUND ? Code.NotFound : Code.ResourceExhausted,
    reason: named(ErrorReason, reason, "REASON") as Reason,
    retryable: reason >= firstRetryable,
    message: "the presence of the channel is no longer followed",
  });
}

/** tokenError converts the error of a token source. It is final if its reason is TOKEN_INVALID. */
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

/** invalid returns the INVALID_FIELD error of a field that the client rejects before it is sent. */
export function invalid(field: string, message: string): ParleyError {
  return new ParleyError({
    code: Code.InvalidArgument,
    reason: "INVALID_FIELD",
    field,
    message: `${field}: ${message}`,
  });
}

/**
 * tokenRefused reports whether the server refused the token, which another one may replace. One
 * that was revoked is not replaced: its user has signed out.
 */
export function tokenRefused(err: ParleyError | undefined): boolean {
  return (
    err !== undefined &&
    err.reason !== "TOKEN_REVOKED" &&
    (err.code === Code.Unauthenticated || err.reason === "TOKEN_EXPIRED")
  );
}

/**
 * nodeFailed reports whether the error means that the node failed, so that another node may serve
 * the same call.
 */
export function nodeFailed(err: ParleyError | undefined): boolean {
  if (err === undefined || !err.retryable || err.ofStream) {
    return false;
  }
  return (
    err.unanswered ||
    err.reason === "NODE_FULL" ||
    err.code === Code.Unavailable ||
    err.code === Code.DeadlineExceeded ||
    err.code === Code.Internal
  );
}
