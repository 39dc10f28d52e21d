import { batch, signal } from "@preact/signals";
import { Backoff } from "../../connection/backoff";
import { type Failure, failure } from "../../connection/failure";
import { Connection } from "../../connection/state";
import { Track } from "./track";
import { type Environment, lag, type QueueClient, type Stats, sum, type Topic } from "./types";

/**
 * The intervals at which counts are requested while the page is visible and while it is hidden, in
 * milliseconds.
 */
export const pollEvery = 1_000;
export const pollHidden = 10_000;

/** topicsEvery is the interval at which the topics are listed, in milliseconds. */
export const topicsEvery = 3_000;

/**
 * topicsPerRound is the maximum number of topics whose counts are requested in one round of
 * polling. If there are more, the chosen one is in every round and the others take turns.
 */
export const topicsPerRound = 10;

const waitMost = 15_000;

/** TopicView is the state of a topic that the page shows. It is replaced with each change. */
export interface TopicView {
  topic: Topic;
  /** Null until the topic's counts were loaded for the first time. */
  stats: Stats | null;
  /** When the topic's counts were last loaded, in milliseconds since 1970. */
  at: number;
  /** The counts over time. The object stays the same while the topic exists. */
  track: Track;
  /** Messages per second. Null while not known. */
  produced: number | null;
  acked: number | null;
}

/** Board holds all topics and their counts. It polls the server. */
export class Board {
  /** The topics, ordered by name. */
  readonly topics = signal<readonly TopicView[]>([]);
  /** True once the topics were listed. */
  readonly loaded = signal(false);
  readonly connection: Connection["current"];
  /** The name of the chosen topic, or null. */
  readonly chosen = signal<string | null>(null);

  readonly #end = new AbortController();
  #cancel = () => {};
  #started = false;
  #running = false;
  #again = false;
  #listed = Number.NEGATIVE_INFINITY;
  readonly #connection = new Connection();
  readonly #backoff: Backoff;

  constructor(
    readonly client: QueueClient,
    readonly around: Environment,
  ) {
    this.connection = this.#connection.current;
    this.#backoff = new Backoff(pollEvery, waitMost, () => around.random());
  }

  /** Starts polling. */
  start(): void {
    this.#started = true;
    void this.#round();
  }

  /** Stops polling and aborts calls. */
  close(): void {
    this.#end.abort();
    this.#cancel();
  }

  /**
   * Chooses a topic, or none for null, and polls now. The counts of the chosen topic are requested
   * in every round of polling.
   */
  choose(name: string | null): void {
    if (this.chosen.value === name) return;
    this.chosen.value = name;
    this.wake();
  }

  /**
   * Polls now, because the page became visible, the network returned, or a call changed a topic. It
   * does nothing before start, after close and when the connection has ended.
   */
  wake(): void {
    this.#listed = Number.NEGATIVE_INFINITY;
    if (!this.#started || this.connection.value.state === "ended" || this.#end.signal.aborted) return;
    if (this.#running) this.#again = true;
    else void this.#round();
  }

  /** Polls again after the connection ended. */
  retry(): void {
    this.#connection.restart();
    this.wake();
  }

  /** Makes a call with a signal that is aborted by close. */
  async call<T>(make: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return make(this.#end.signal);
  }

  /** Returns the topic with a name, if there is one. */
  view(name: string | null): TopicView | undefined {
    return this.topics.value.find((view) => view.topic.name === name);
  }

  async #round(): Promise<void> {
    this.#cancel();
    this.#running = true;
    this.#again = false;
    const began = this.around.now();
    let failed: unknown;
    try {
      await this.#ask(began);
    } catch (cause) {
      failed = cause;
    }
    this.#running = false;
    if (this.#end.signal.aborted) return;
    if (failed !== undefined) {
      this.#broke(failure(failed));
      return;
    }
    this.#backoff.reset();
    this.#connection.to({ state: "live" });
    const every = this.around.hidden() ? pollHidden : pollEvery;
    const wait = this.#again ? 0 : Math.max(0, began + every - this.around.now());
    this.#cancel = this.around.after(wait, () => void this.#round());
  }

  #broke(why: Failure): void {
    for (const { track } of this.topics.value) track.break();
    if (why.remedy !== "none") {
      this.#connection.end(why);
      return;
    }
    const wait = this.#backoff.next(why.retryAfter);
    this.#connection.to({ state: "waiting", reason: why.text, until: this.around.now() + wait });
    this.#cancel = this.around.after(wait, () => void this.#round());
  }

  async #ask(now: number): Promise<void> {
    if (now - this.#listed >= topicsEvery) {
      const topics = await this.call((signal) => this.client.topics(signal));
      if (this.#end.signal.aborted) return;
      this.#listed = now;
      this.#list(topics);
    }
    const due = this.topics.value
      .filter((view) => view.topic.name !== this.chosen.value)
      .sort((a, b) => a.at - b.at)
      .slice(0, topicsPerRound - 1)
      .map((view) => view.topic.name);
    const asked = this.view(this.chosen.value) ? [this.chosen.value as string, ...due] : due;
    const answers = await Promise.allSettled(
      asked.map((name) => this.call((signal) => this.client.stats(name, signal))),
    );
    if (this.#end.signal.aborted) return;
    let failed: unknown;
    const counted = new Map<string, Stats>();
    for (const [i, answer] of answers.entries()) {
      const name = asked[i] as string;
      if (answer.status === "fulfilled") counted.set(name, answer.value);
      else if (failure(answer.reason).reason === "TOPIC_NOT_FOUND") this.#listed = Number.NEGATIVE_INFINITY;
      else failed ??= answer.reason;
    }
    this.#count(counted, this.around.now());
    if (failed !== undefined) throw failed;
  }

  // A topic that was created again with the same name has a new track.
  #list(topics: readonly Topic[]): void {
    batch(() => {
      this.topics.value = topics.map((topic) => {
        const known = this.view(topic.name);
        if (known?.topic.createTime === topic.createTime) return { ...known, topic };
        return { topic, stats: null, at: 0, track: new Track(), produced: null, acked: null };
      });
      this.loaded.value = true;
    });
  }

  #count(counted: ReadonlyMap<string, Stats>, at: number): void {
    this.topics.value = this.topics.value.map((view) => {
      const stats = counted.get(view.topic.name);
      if (!stats) return view;
      const { track } = view;
      track.add(at, values(stats));
      return { ...view, stats, at, produced: track.rate("produced"), acked: track.rate("acked") };
    });
  }
}

/** values returns the numbers of a topic's track by name, with `lag:<group>` for each group. */
export function values({ total }: Stats): Record<string, number> {
  const named: Record<string, number> = {
    length: total.length,
    delayed: total.delayed,
    produced: total.produced,
    dead: total.deadLetters,
    acked: sum(total.groups, (g) => g.acked),
    retried: sum(total.groups, (g) => g.retried),
  };
  for (const group of total.groups) named[`lag:${group.group}`] = lag(group);
  return named;
}
