import type { Core } from "./core.js";
import type { PresenceCore } from "./presencecore.js";

/**
 * Carriers pairs a client's presences with its subscriptions. A subscription's stream carries at
 * most one presence. A presence without a carrier has a stream of its own.
 */
export class Carriers {
  readonly #subscriptions = new Set<Core>();
  readonly #presences = new Set<PresenceCore>();

  /** enter adds a subscription, which carries a presence that has no carrier. */
  enter(subscription: Core): void {
    this.#subscriptions.add(subscription);
    this.vacate(subscription);
  }

  /**
   * vacate makes a subscription carry a presence that has no carrier, if there is one. It does
   * nothing for a subscription that has ended or is barred.
   */
  vacate(subscription: Core): void {
    if (!this.#subscriptions.has(subscription) || subscription.barred) {
      return;
    }
    for (const presence of this.#presences) {
      if (presence.carrier === undefined) {
        subscription.carry(presence);
        return;
      }
    }
  }

  leave(subscription: Core): void {
    this.#subscriptions.delete(subscription);
  }

  /** add adds a presence. Subscriptions that are created later can carry it. */
  add(presence: PresenceCore): void {
    this.#presences.add(presence);
  }

  delete(presence: PresenceCore): void {
    this.#presences.delete(presence);
  }

  /** seek makes a subscription carry a presence that has no carrier, if one can. */
  seek(presence: PresenceCore): void {
    for (const subscription of this.#subscriptions) {
      if (subscription.rider === undefined && !subscription.barred) {
        subscription.carry(presence);
        return;
      }
    }
  }
}
