import type {
  Environment,
  GroupCounts,
  Letter,
  Operation,
  QueueClient,
  Selection,
  Stats,
  Topic,
} from "../../src/queues/model/types";
import { parleyError } from "../chat/fake";

/** FakeClock is a clock that only tests advance. */
export class FakeClock implements Environment {
  seen = true;
  #now = Date.UTC(2026, 0, 1);
  #timers: { at: number; callback: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  after(ms: number, callback: () => void): () => void {
    const timer = { at: this.#now + ms, callback };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  hidden(): boolean {
    return !this.seen;
  }

  random(): number {
    return 0.5;
  }

  /** Advances the clock and runs due timers in order, with all their work. */
  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      await settle();
      const next = this.#timers.filter((timer) => timer.at <= end).sort((a, b) => a.at - b.at)[0];
      if (!next) break;
      this.#timers = this.#timers.filter((timer) => timer !== next);
      this.#now = Math.max(this.#now, next.at);
      next.callback();
    }
    this.#now = end;
  }
}

async function settle(): Promise<void> {
  for (let i = 0; i < 20; i++) await Promise.resolve();
}

interface FakeTopic {
  settings: Topic;
  produced: number;
  length: number;
  deadLetters: number;
  groups: [GroupCounts, ...GroupCounts[]];
  letters: Letter[];
}

/** FakeQueues is a server with topics that answers as AdminService does. */
export class FakeQueues {
  readonly #topics = new Map<string, FakeTopic>();
  #made = 0;
  #buried = 0;
  calls = 0;
  /** The topics whose counts were requested, in order. */
  readonly asked: string[] = [];
  /** Returns an error for a call, which then has no effect, or null. */
  fail: (call: string) => Error | null = () => null;

  topic(
    name: string,
    counts: { produced?: number; length?: number; deadLetters?: number } = {},
    groups: Record<string, Partial<GroupCounts>> = {},
  ): FakeTopic {
    const settings: Topic = {
      name,
      partitions: 1,
      partitioner: "consistent hash",
      strictOrder: false,
      maxAttempts: 16,
      maxMessages: 0,
      dropOldest: false,
      createTime: ++this.#made,
      producePaused: false,
      consumePaused: false,
      groups: Object.keys(groups),
    };
    const made = Object.entries(groups).map(([group, some]) => ({ ...none, ...some, group }));
    const topic = { settings, produced: 0, length: 0, deadLetters: 0, ...counts, letters: [] };
    const whole = { ...topic, groups: made as [GroupCounts, ...GroupCounts[]] };
    this.#topics.set(name, whole);
    return whole;
  }

  drop(name: string): void {
    this.#topics.delete(name);
  }

  letters(name: string): Letter[] {
    return this.#topics.get(name)?.letters ?? [];
  }

  /** Creates dead letters. The last one is the newest. */
  bury(name: string, n: number, group: (i: number) => string): void {
    for (let i = 0; i < n; i++) {
      this.#buried++;
      this.letters(name).unshift({
        id: `0-${this.#buried}-0`,
        messageId: `0-1700000000000-${this.#buried}`,
        partition: 0,
        group: group(i),
        key: "",
        payload: new Uint8Array(),
        headers: {},
        attempts: 1,
        reason: "",
        code: "",
        produceTime: new Date(0),
        deadLetterTime: new Date(this.#buried),
      });
    }
  }

  readonly client: QueueClient = {
    topics: () =>
      this.#answer("topics", () =>
        [...this.#topics.values()].map((t) => t.settings).sort((a, b) => (a.name < b.name ? -1 : 1)),
      ),
    stats: (name) =>
      this.#answer("stats", () => {
        this.asked.push(name);
        const topic = this.#topics.get(name);
        if (!topic) throw parleyError("TOPIC_NOT_FOUND");
        const { produced, length } = topic;
        const deadLetters = topic.deadLetters + topic.letters.length;
        const groups = topic.groups.map((g) => ({ ...g }));
        const total = { length, delayed: 0, produced, cancelled: 0, deadLetters, groups };
        return { total, partitions: [{ ...total, partition: 0 }] } satisfies Stats;
      }),
    owners: () => this.#answer("owners", () => []),
    pending: () => this.#answer("pending", () => ({ entries: [], total: 0 })),
    letters: (name, group, page, limit) =>
      this.#answer("letters", () => {
        const all = this.letters(name).filter((l) => group === "" || l.group === group);
        const from = page === "" ? 0 : all.findIndex((l) => l.id === page) + 1;
        const letters = all.slice(from, from + limit);
        return { letters, next: from + limit < all.length ? (letters.at(-1)?.id ?? "") : "" };
      }),
    replay: (name, which) =>
      this.#answer("replay", () => {
        const replayed = this.#take(name, which, 1_000);
        return { replayed, more: which.kind !== "ids" && this.letters(name).some((l) => selects(which, l)) };
      }),
    purge: (name, which, confirm) =>
      this.#answer("purge", () => {
        if (confirm !== name)
          throw parleyError("CONFIRMATION_REQUIRED", { message: "confirm must be the topic's name" });
        return this.#take(name, which, Number.POSITIVE_INFINITY);
      }),
    pause: (name, operations) => this.#answer("pause", () => this.#pause(name, operations, true)),
    resume: (name, operations) => this.#answer("resume", () => this.#pause(name, operations, false)),
    createTopic: ({ name }) => this.#answer("createTopic", () => void this.topic(name)),
    createGroup: () => this.#answer("createGroup", () => {}),
  };

  #pause(name: string, operations: readonly Operation[], paused: boolean): void {
    const settings = this.#topics.get(name)?.settings;
    if (!settings) throw parleyError("TOPIC_NOT_FOUND");
    if (operations.length === 0) throw parleyError("INVALID_FIELD");
    for (const operation of operations) settings[`${operation}Paused`] = paused;
  }

  #take(name: string, which: Selection, limit: number): number {
    const topic = this.#topics.get(name);
    if (!topic) throw parleyError("TOPIC_NOT_FOUND");
    if (which.kind === "ids" && (which.ids.length === 0 || which.ids.length > 1_000))
      throw parleyError("INVALID_FIELD");
    const taken = new Set(topic.letters.filter((l) => selects(which, l)).slice(-limit));
    topic.letters = topic.letters.filter((l) => !taken.has(l));
    return taken.size;
  }

  async #answer<T>(call: string, make: () => T): Promise<T> {
    this.calls++;
    const error = this.fail(call);
    if (error) throw error;
    return make();
  }
}

function selects(which: Selection, letter: Letter): boolean {
  if (which.kind === "ids") return which.ids.includes(letter.id);
  return which.kind === "all" || which.group === letter.group;
}

const none: GroupCounts = {
  group: "",
  unread: 0,
  pending: 0,
  retrying: 0,
  parked: 0,
  acked: 0,
  dead: 0,
  retried: 0,
  replayed: 0,
  trimmed: 0,
  skipped: 0,
  oldestAge: 0,
  consumers: 0,
  ownedPartitions: 0,
};
