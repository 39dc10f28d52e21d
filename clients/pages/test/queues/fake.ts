import type {
  Environment,
  Group,
  GroupCounts,
  Job,
  Letter,
  QueueClient,
  Sample,
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
  for (let i = 0; i < 200; i++) await Promise.resolve();
}

interface FakeTopic {
  settings: Topic;
  produced: number;
  length: number;
  deadLetters: number;
  groups: [GroupCounts, ...GroupCounts[]];
  letters: Letter[];
  history: Sample[];
}

/** FakeQueues is a server with topics that answers as the queue services do. */
export class FakeQueues {
  readonly #topics = new Map<string, FakeTopic>();
  #made = 0;
  #buried = 0;
  calls = 0;
  /** The topics whose counts were requested, in order. */
  readonly asked: string[] = [];
  /** The topics whose history was requested, in order. */
  readonly histories: string[] = [];
  /** How many calls are under way, and the most that there ever were. */
  #running = 0;
  most = 0;
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
      maxAge: 0,
      keptMessages: 0,
      deadLetterMaxAge: 0,
      maxDeadLetters: 0,
      maxMessages: 0,
      dropOldest: false,
      idempotencyWindow: 600_000,
      createTime: ++this.#made,
      paused: false,
      groups: Object.keys(groups),
    };
    const made = Object.entries(groups).map(([group, some]) => ({ ...none, ...some, group }));
    const topic = { settings, produced: 0, length: 0, deadLetters: 0, ...counts, letters: [], history: [] };
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
  bury(name: string, n: number, group: (i: number) => string, code = ""): void {
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
        code,
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
    stats: (name, history) =>
      this.#answer("stats", () => {
        this.asked.push(name);
        if (history) this.histories.push(name);
        const topic = this.#found(name);
        const { produced, length } = topic;
        const deadLetters = topic.deadLetters + topic.letters.length;
        const groups = topic.groups.map((g) => ({ ...g }));
        const total = { length, scheduled: 0, produced, deadLetters, groups };
        const samples = history ? [...topic.history] : [];
        return { total, partitions: [{ ...total, partition: 0 }], history: samples } satisfies Stats;
      }),
    groups: (name) => this.#answer("groups", () => this.#found(name).settings.groups.map(group)),
    leases: () => this.#answer("leases", () => []),
    jobs: () => this.#answer("jobs", () => ({ items: [], next: "" })),
    job: () =>
      this.#answer("job", (): Job => {
        throw parleyError("MESSAGE_NOT_FOUND");
      }),
    consumers: () => this.#answer("consumers", () => ({ items: [], next: "", missingNodes: [] })),
    letters: ({ topic, group, code }, page, limit) =>
      this.#answer("letters", () => {
        const of = (l: Letter) => (group === "" || l.group === group) && (code === "" || l.code === code);
        const all = this.letters(topic).filter(of);
        const from = page === "" ? 0 : all.findIndex((l) => l.id === page) + 1;
        const items = all.slice(from, from + limit);
        return { items, next: from + limit < all.length ? (items.at(-1)?.id ?? "") : "" };
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
    pauseTopic: (name, paused) =>
      this.#answer("pauseTopic", () => {
        this.#found(name).settings.paused = paused;
      }),
    pauseGroup: () => this.#answer("pauseGroup", () => {}),
    createTopic: ({ name }) => this.#answer("createTopic", () => void this.topic(name)),
    createGroup: () => this.#answer("createGroup", () => {}),
    updateTopic: () => this.#answer("updateTopic", () => {}),
    updateGroup: () => this.#answer("updateGroup", () => {}),
    trim: () => this.#answer("trim", () => ({ removed: 0, lost: 0 })),
    deleteTopic: (name) => this.#answer("deleteTopic", () => this.drop(name)),
    deleteGroup: () => this.#answer("deleteGroup", () => {}),
    seekGroup: () => this.#answer("seekGroup", () => {}),
    retry: (_topic, _group, ids) => this.#answer("retry", () => ids.length),
    cancel: (_topic, ids) => this.#answer("cancel", () => ({ done: ids.length, failed: 0, problems: [] })),
    reschedule: (_topic, ids) => this.#answer("reschedule", () => ({ done: ids.length, failed: 0, problems: [] })),
    produce: () => this.#answer("produce", () => "0-1"),
  };

  #found(name: string): FakeTopic {
    const topic = this.#topics.get(name);
    if (!topic) throw parleyError("TOPIC_NOT_FOUND");
    return topic;
  }

  #take(name: string, which: Selection, limit: number): number {
    const topic = this.#found(name);
    if (which.kind === "ids" && (which.ids.length === 0 || which.ids.length > 1_000))
      throw parleyError("INVALID_FIELD");
    const taken = new Set(topic.letters.filter((l) => selects(which, l)).slice(-limit));
    topic.letters = topic.letters.filter((l) => !taken.has(l));
    return taken.size;
  }

  async #answer<T>(call: string, make: () => T): Promise<T> {
    this.calls++;
    this.most = Math.max(this.most, ++this.#running);
    try {
      await Promise.resolve();
      const error = this.fail(call);
      if (error) throw error;
      return make();
    } finally {
      this.#running--;
    }
  }
}

function selects(which: Selection, letter: Letter): boolean {
  if (which.kind === "ids") return which.ids.includes(letter.id);
  return which.kind === "all" || which.group === letter.group;
}

const none: GroupCounts = {
  group: "",
  waiting: 0,
  running: 0,
  retrying: 0,
  acked: 0,
  dead: 0,
  cancelled: 0,
  expired: 0,
  trimmed: 0,
  retried: 0,
  redelivered: 0,
  replayed: 0,
  oldestAge: 0,
  sessions: 0,
  dispatched: 0,
};

function group(name: string): Group {
  return {
    name,
    exclusive: false,
    order: "key",
    maxAttempts: 16,
    minBackoff: 1_000,
    maxBackoff: 600_000,
    ackTimeout: 30_000,
    handlerTimeout: 900_000,
    maxRunTime: 3_600_000,
    resumeGrace: 10_000,
    nonRetryable: [],
    paused: false,
  };
}
