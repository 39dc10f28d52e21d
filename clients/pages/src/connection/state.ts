import { type ReadonlySignal, signal } from "@preact/signals";
import type { Failure } from "./failure";

/**
 * ConnectionState is the state of a page's connection to the server. See Connection for the
 * transitions.
 */
export type ConnectionState =
  | { readonly state: "connecting" }
  | { readonly state: "live" }
  /**
   * The last attempt failed for the given reason. The next one starts at until, in milliseconds
   * since 1970.
   */
  | { readonly state: "waiting"; readonly reason: string; readonly until: number }
  /** No further attempt is made. reason is the text to show. */
  | { readonly state: "ended"; readonly reason: string; readonly end: EndReason };

/**
 * EndReason is why a connection ended: the token was revoked, because its user signed out here or
 * elsewhere; the server refused the token for another reason; the token lacks a capability; or
 * another failure that a retry does not fix.
 */
export type EndReason = "revoked" | "token" | "capability" | "failed";

type Name = ConnectionState["state"];

const transitions: Readonly<Record<Name, readonly Name[]>> = {
  connecting: ["live", "waiting", "ended"],
  live: ["connecting", "waiting", "ended"],
  waiting: ["connecting", "live", "waiting", "ended"],
  ended: [],
};

/**
 * Connection holds the state of one connection and allows only these transitions:
 *
 * | from | to | when |
 * |---|---|---|
 * | connecting, waiting | live | the server answered |
 * | connecting, live, waiting | waiting | an attempt failed, and another one will be made |
 * | live, waiting | connecting | an attempt begins |
 * | connecting, live, waiting | ended | the server refused permanently |
 * | ended (failed) | ended (revoked, token, capability) | a call found the cause |
 * | ended | connecting | restart |
 *
 * Others are ignored, so that a late event does not reopen a connection that has ended.
 */
export class Connection {
  readonly #current = signal<ConnectionState>({ state: "connecting" });

  /** The current state. */
  get current(): ReadonlySignal<ConnectionState> {
    return this.#current;
  }

  /** Enters a state if the table allows the transition. */
  to(next: ConnectionState): void {
    const now = this.#current.value;
    const cause = now.state === "ended" && now.end === "failed" && next.state === "ended" && next.end !== "failed";
    if (cause || transitions[now.state].includes(next.state)) this.#current.value = next;
  }

  /** Ends the connection because of a failure. */
  end({ reason, text, remedy }: Failure): void {
    const end = reason === "TOKEN_REVOKED" ? "revoked" : remedy === "none" ? "failed" : remedy;
    this.to({ state: "ended", reason: text, end });
  }

  /** Enters connecting if the connection has ended. Otherwise it does nothing. */
  restart(): void {
    if (this.#current.value.state === "ended") this.#current.value = { state: "connecting" };
  }
}
