import { type Client, Code } from "@connectrpc/connect";
import type { MessageService } from "@parleyhq/api/parley/v1/message_pb.js";
import { now } from "./clock.js";
import { nodeFailed, type ParleyError } from "./error.js";

/** Rpc is the generated client of one node. */
export type Rpc = Client<typeof MessageService>;

// How long a node that failed is avoided, and how long at most one that fails again and again.
const avoidMs = 5_000;
const avoidMostMs = 30_000;
// How long an attempt must have taken for its deadline to tell something about the node.
const tellingMs = 1_000;

/** Endpoint is one node that a client may call. */
export interface Endpoint {
  readonly addr: string;
  readonly rpc: Rpc;
  /** How often in a row the node failed, not counting what failed while it was avoided anyway. */
  failures: number;
  failedAt: number;
  /** Until when other nodes are preferred. */
  avoided: number;
}

/** Endpoints are the nodes that a client may call, in an order of its own. It sticks to one until that one fails. */
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
      avoided: Number.NEGATIVE_INFINITY,
    }));
    // Each client has another order, so that all nodes are used, and those whose node fails do not all go to the same.
    for (let i = this.#nodes.length - 1; i > 0; i--) {
      const j = Math.floor(random() * (i + 1));
      const [a, b] = [this.#node(i), this.#node(j)];
      this.#nodes[i] = b;
      this.#nodes[j] = a;
    }
  }

  /**
   * pick gives the node for the next attempt: the current one, or if that is to be avoided the next one that is not. If
   * all are, it is the one whose last failure is the longest ago.
   */
  pick(): Endpoint {
    const at = this.#now();
    let oldest = this.#current;
    for (let i = 0; i < this.#nodes.length; i++) {
      const index = (this.#current + i) % this.#nodes.length;
      const node = this.#node(index);
      if (at >= node.avoided) {
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

  /** elsewhere reports whether the next attempt goes to another node, and to one that is not known to fail. */
  elsewhere(node: Endpoint): boolean {
    const next = this.pick();
    return next !== node && this.#now() >= next.avoided;
  }

  /** fail makes the next attempts go elsewhere. Many calls that fail together count once. */
  fail(node: Endpoint): void {
    const at = this.#now();
    node.failedAt = at;
    if (at < node.avoided) {
      return;
    }
    node.avoided = at + Math.min(avoidMs * 2 ** Math.min(node.failures, 8), avoidMostMs);
    node.failures++;
  }

  /**
   * work notes that the node answered an attempt which began at the time given. What began before the last failure
   * proves nothing: a node that shuts down still answers.
   */
  work(node: Endpoint, began: number): void {
    if (began > node.failedAt) {
      node.failures = 0;
      node.avoided = Number.NEGATIVE_INFINITY;
    }
  }

  /**
   * judge draws from the outcome of an attempt whether the node works. signal is the caller's, without the attempt's
   * own limit, which is given in milliseconds.
   */
  judge(signal: AbortSignal, node: Endpoint, began: number, limit: number, err: ParleyError | undefined): void {
    const overdue = signal.aborted && isTimeout(signal.reason);
    if (signal.aborted && !overdue) {
      return;
    }
    if (overdue || err?.code === Code.DeadlineExceeded) {
      // A short deadline is more likely to be what was too short.
      if (this.#now() - began >= Math.min(tellingMs, limit)) {
        this.fail(node);
      }
    } else if (nodeFailed(err)) {
      this.fail(node);
    } else {
      this.work(node, began);
    }
  }

  #node(index: number): Endpoint {
    return this.#nodes[index] as Endpoint;
  }
}

/** isTimeout reports whether a signal was aborted by AbortSignal.timeout. */
function isTimeout(reason: unknown): boolean {
  return reason instanceof Error && reason.name === "TimeoutError";
}
