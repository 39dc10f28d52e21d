import { Code, ConnectError } from "@connectrpc/connect";
import { ErrorDetailSchema, ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type { Reason } from "@parleyhq/sdk";

/** Failure is the part of an error that a page uses, regardless of the error's source. */
export interface Failure {
  /** Parley's reason, for example `NOT_MEMBER`. Empty if the error has none. */
  readonly reason: string;
  /** The text to show. */
  readonly text: string;
  /** What the user can change so that the call succeeds. See Remedy. */
  readonly remedy: Remedy;
  /** The invalid field of the request. Empty if no field is at fault. */
  readonly field: string;
  /** The channels that the error names. */
  readonly channels: readonly string[];
  /** The minimum wait before a retry, in milliseconds. 0 if the server asks for none. */
  readonly retryAfter: number;
}

/**
 * Remedy is what a user can change after a failure: the token, because the server refused it
 * (`token`) or because it does not allow the call (`capability`), or nothing (`none`).
 */
export type Remedy = "none" | "token" | "capability";

const unreachable = "The server can't be reached.";
const timedOut = "The server did not answer in time.";

// Texts for reasons for which a page's own text is clearer than the server's.
const texts: Partial<Record<Reason, string>> = {
  TOKEN_INVALID: "The token is not valid.",
  TOKEN_EXPIRED: "The token has expired.",
  TOKEN_REVOKED: "The token was revoked.",
  REVOCATION_UNKNOWN: "The server can't tell at the moment whether the token is still valid.",
  CAPABILITY_MISSING: "The token does not allow this.",
  NODE_FULL: "The server has reached its limit of connections.",
  RATE_LIMITED: "Too many requests in a short time. Wait a moment, then try again.",
  STORE_UNAVAILABLE: "The server can't use its storage at the moment.",
  SHUTTING_DOWN: "The server is shutting down.",
  DEADLINE_EXCEEDED: timedOut,
  NOT_MEMBER: "This channel is for members only, and you are not a member.",
  CHANNEL_NOT_FOUND: "There is no such channel, or it was deleted.",
  NOT_SENDER: "You can only change your own messages.",
  MESSAGE_RECALLED: "The message was deleted.",
  TOO_LARGE: "The text is too long.",
};

/**
 * Parts holds the properties that errors of the SDK have. fromConnect reads them from errors of
 * generated clients.
 */
interface Parts {
  reason?: unknown;
  code?: unknown;
  message?: unknown;
  rawMessage?: unknown;
  requestId?: unknown;
  field?: unknown;
  positions?: unknown;
  retryAfter?: unknown;
  cause?: unknown;
}

/** failure converts an error of the SDK, of a generated client, or any other thrown value. */
export function failure(cause: unknown): Failure {
  const parts: Parts = cause instanceof ConnectError ? fromConnect(cause) : isObject(cause) ? cause : {};
  const reason = text(parts.reason);
  const positions = Array.isArray(parts.positions) ? (parts.positions as { channelId?: unknown }[]) : [];
  return {
    reason,
    text: texts[reason as Reason] ?? serverText(cause, parts, reason),
    remedy: remedyOf(reason, parts.code),
    field: text(parts.field),
    channels: positions.map((p) => text(p.channelId)),
    retryAfter: typeof parts.retryAfter === "number" ? parts.retryAfter : 0,
  };
}

function remedyOf(reason: string, code: unknown): Remedy {
  if (reason === "TOKEN_INVALID" || reason === "TOKEN_EXPIRED" || code === Code.Unauthenticated) return "token";
  return reason === "CAPABILITY_MISSING" ? "capability" : "none";
}

function fromConnect(error: ConnectError): Parts {
  const detail = error.findDetails(ErrorDetailSchema)[0];
  const { code, rawMessage, cause } = error;
  if (!detail) return { code, rawMessage, cause };
  const { field, requestId, positions, retryAfter } = detail;
  const wait = retryAfter ? Number(retryAfter.seconds) * 1_000 + retryAfter.nanos / 1_000_000 : 0;
  return { code, rawMessage, cause, field, requestId, positions, reason: ErrorReason[detail.reason], retryAfter: wait };
}

function serverText(cause: unknown, parts: Parts, reason: string): string {
  if (brokenConnection(parts)) return unreachable;
  if (reason === "" && parts.code === Code.DeadlineExceeded) return timedOut;
  if (typeof parts.rawMessage !== "string" || parts.rawMessage === "") return text(parts.message) || String(cause);
  const request = text(parts.requestId);
  return sentence(parts.rawMessage + (request ? ` (request ${request})` : ""));
}

// fetch reports a broken connection as a TypeError. Its text depends on the browser.
function brokenConnection(parts: Parts): boolean {
  for (let at: unknown = parts.cause; isObject(at); at = at.cause) if (at instanceof TypeError) return true;
  return false;
}

// The server's texts begin in lower case and have no full stop. A name at the beginning, for
// example that of a field, keeps its case.
function sentence(words: string): string {
  const capitalized = /^[a-z]+([ ,]|$)/.test(words) ? words.charAt(0).toUpperCase() + words.slice(1) : words;
  return /[.!?]$/.test(capitalized) ? capitalized : `${capitalized}.`;
}

function isObject(value: unknown): value is Parts {
  return typeof value === "object" && value !== null;
}

function text(value: unknown): string {
  return typeof value === "string" ? value : "";
}
