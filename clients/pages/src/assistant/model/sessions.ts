import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { SessionInfo } from "./types";

/** SessionView is a session as the list shows it. */
export interface SessionView {
  readonly id: string;
  /** The title. Empty if the session has none. */
  readonly title: string;
  readonly activeTime: Date;
  /** The number of messages after the read cursor. */
  readonly unread: number;
  /** True while an answer is being generated, as far as this page follows the session. */
  readonly answering: boolean;
}

// A list can be older than what this page did: 100 ms on the server, and the time on the way.
const settled = 5_000;

/** Sessions is the list of the user's sessions, those with the latest activity first. */
export class Sessions {
  readonly list: ReadonlySignal<readonly SessionView[]>;
  readonly #all = signal<ReadonlyMap<string, SessionView>>(new Map());
  /** When this page changed something of a session, by the id and what it is. */
  readonly #changedAt = new Map<string, number>();
  readonly #removed = new Set<string>();
  readonly #now: () => number;

  constructor(now: () => number) {
    this.#now = now;
    this.list = computed(() =>
      [...this.#all.value.values()].sort((a, b) => b.activeTime.getTime() - a.activeTime.getTime()),
    );
  }

  get(id: string): SessionView | undefined {
    return this.#all.value.get(id);
  }

  /**
   * Applies the beginning of the server's list. whole means that it is all of it. Sessions that the
   * list should contain and does not are removed.
   */
  listed(found: readonly SessionInfo[], whole: boolean): void {
    const next = new Map(this.#all.value);
    const ids = new Set(found.map((s) => s.sessionId));
    const reaches = whole ? 0 : Math.min(...found.map((s) => s.activeTime.getTime()));
    for (const [id, { activeTime }] of next) {
      if (!ids.has(id) && activeTime.getTime() > reaches && !this.#recent(id, "activeTime")) next.delete(id);
    }
    for (const { sessionId: id, title, activeTime, unread } of found) {
      const known = next.get(id);
      if (this.#removed.has(id)) continue;
      next.set(id, {
        id,
        title: known && this.#recent(id, "title") ? known.title : title,
        activeTime: known ? later(activeTime, known.activeTime) : activeTime,
        unread: known && this.#recent(id, "unread") ? known.unread : unread,
        answering: known?.answering ?? false,
      });
    }
    this.#all.value = next;
  }

  /** Adds a session, or moves it to the top of the list. */
  touch(id: string, time: Date, title = ""): void {
    if (this.#removed.has(id)) return;
    const known = this.get(id) ?? { id, title, activeTime: time, unread: 0, answering: false };
    this.#put({ ...known, activeTime: later(time, known.activeTime) }, ["activeTime"]);
  }

  /** Changes what is known of a session. It does nothing if the session is not in the list. */
  update(id: string, changes: Partial<Pick<SessionView, "title" | "unread" | "answering">>): void {
    const known = this.get(id);
    const same = known && Object.entries(changes).every(([key, value]) => known[key as keyof SessionView] === value);
    if (known && !same) this.#put({ ...known, ...changes }, Object.keys(changes));
  }

  /** Removes a deleted session. It does not come back. */
  remove(id: string): void {
    this.#removed.add(id);
    const next = new Map(this.#all.value);
    next.delete(id);
    this.#all.value = next;
  }

  #put(view: SessionView, changed: readonly string[]): void {
    for (const what of changed) this.#changedAt.set(`${view.id} ${what}`, this.#now());
    this.#all.value = new Map(this.#all.value).set(view.id, view);
  }

  // Reports whether a list may be older than this page's last change of something.
  #recent(id: string, what: keyof SessionView): boolean {
    return this.#now() - (this.#changedAt.get(`${id} ${what}`) ?? Number.NEGATIVE_INFINITY) < settled;
  }
}

function later(a: Date, b: Date): Date {
  return a > b ? a : b;
}
