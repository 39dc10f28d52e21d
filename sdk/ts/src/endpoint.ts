import { type Client, Code } from "@connectrpc/connect";
import type { MessageService } from "@parleyhq/api/parley/v1/message_pb.js";
import type { PresenceService } from "@parleyhq/api/parley/v1/presence_pb.js";
import type { ServerService } from "@parleyhq/api/parley/v1/server_pb.js";
import { now } from "./clock.js";
import { nodeFailed, type ParleyError } from "./error.js";

/** Rpc combines the generated clients of one node. */
export type Rpc = Client<typeof MessageService> & Client<typeof PresenceService> & Client<typeof ServerService>;

// The time in milliseconds for which a node that failed is avoided, and the maximum for one that
// fails repeatedly.
const avoidMs = 5_000;
const maxAvoidMs = 30_000;
// An attempt that was ended by its deadline counts as a failure of the node if it took at least
// this many milliseconds, or its whole time limit.
const minFailureMs = 1_000;

/** Endpoint is one node that a client can call. */
export interface Endpoint {
  readonly addr: string;
  readonly rpc: Rpc;
  /** The number of failures in a row, excluding those while the node was avoided. */
  failures: number;
  failedAt: number;
  /** The time until which other nodes are preferred. */
  avoidedUntil: number;
}

/**
 * Endpoints are the nodes that a client can call, in random order. The client uses one node until
 * that node fails.
 */
export class Endpoints {
  readonly #nodes: Endpoint[];
  readonly #now: () => number;
  #current = 0;

  constructor(addrs: string[], dial: (addr: string) => Rpc, random: () => number, clock: () => number = now) {
    this.#now = clock;
    this.#nodes = addrs.map((addr) => ({
      addr,
      rpc: dial(addr),
      failures: 0,
      failedAt: Number.NEGATIVE_INFINITY,
      avoidedUntil: Number.NEGATIVE_INFINITY,
    }));
    // Each client has its own order, so that all nodes are used and the clients of a failed node go
    // to different nodes.
    for (let i = this.#nodes.length - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      const [a, b] = [this.#node(i), this.#node(j)];
      this.#nodes[i] = b;
      this.#nodes[j] = a;
    }
  }

  /**
   * pick returns the node for the next attempt: the current one, or the next one if the current one
   * is avoided. If all are avoided, it returns the one with the oldest last failure.
   */
  pick(): Endpoint {
    const at = this.#now();
    let oldest = this.#current;
    for (let i = 0; i < this.#nodes.length; i++) {
      const index = (this.#current + i) % this.#nodes.length;
      const node = this.#node(index);
      if (at >= node.avoidedUntil) {
        this.#current = index;
        return node;
      }
      if (node.failedAt < this.#node(oldest).failedAt) {
        oldest = index;
      }
    }
    this.#current = oldest;
    return this.#node(oldest);
  }

  /** hasOther reports whether the next attempt goes to another node that is not avoided. */
  hasOther(node: Endpoint): boolean {
    const next = this.pick();
    return next !== node && this.#now() >= next.avoidedUntil;
  }

  /** hasSpare reports whether a node other than the given one is not avoided. */
  hasSpare(node: Endpoint | undefined): boolean {
    const at = this.#now();
    return this.#nodes.some((other) => other !== node && at >= other.avoidedUntil);
  }

  /**
   * fail records a failure, so that the next attempts go to other nodes. A failure of an avoided
   * node does not extend the time for which it is avoided.
   */
  fail(node: Endpoint): void {
    const at = this.#now();
    node.failedAt = at;
    if (at < node.avoidedUntil) {
      return;
    }
    node.avoidedUntil = at + Math.min(avoidMs * 2 ** Math.min(node.failures, 8), maxAvoidMs);
    node.failures++;
  }

  /**
   * markWorking records that the node answered an attempt that began at the given time. An attempt
   * that began before the last failure does not count, because a node that shuts down still
   * answers.
   */
  markWorking(node: Endpoint, began: number): void {
    if (began > node.failedAt) {
      node.failures = 0;
      node.avoidedUntil = Number.NEGATIVE_INFINITY;
    }
  }

  /**
   * recordOutcome records whether the node works, according to the outcome of an attempt that began
   * at the given time. signal is that of the call, limit is the attempt's time limit in
   * milliseconds.
   */
  recordOutcome(signal: AbortSignal, node: Endpoint, began: number, limit: number, err: ParleyError | undefined): void {
    const overdue = signal.aborted && isTimeout(signal.reason);
    if (signal.aborted && !overdue) {
      return;
    }
    if (overdue || err?.code === Code.DeadlineExceeded) {
      // A deadline that ended the attempt after a shorter time says nothing about the node.
      if (this.#now() - began >= Math.min(minFailureMs, limit)) {
        this.fail(node);
      }
    } else if (nodeFailed(err)) {
      this.fail(node);
    } else {
      this.markWorking(node, began);
    }
  }

  #node(index: number): Endpoint {
    return this.#nodes[index] as Endpoint;
  }
}

/**
 * isTimeout reports whether a signal's reason is that of a time limit, as AbortSignal.timeout sets
 * it.
 */
function isTimeout(reason: unknown): boolean {
  return reason instanceof Error && reason.name === "TimeoutError";
}
