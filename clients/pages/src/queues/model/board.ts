import { batch, signal } from "@preact/signals";
import { Backoff } from "../../connection/backoff";
import { type Failure, failure } from "../../connection/failure";
import { Connection } from "../../connection/state";
import { merged } from "./history";
import { Rate } from "./rate";
import { type Environment, type Group, type QueueClient, type Sample, type Stats, sum, type Topic } from "./types";

/** pollEvery is the time between the beginnings of two rounds of polling, in milliseconds. */
export const pollEvery = 3_000;

/** topicsEvery is the interval at which the topics and the chosen one's groups are listed. */
export const topicsEvery = 15_000;

/** historyEvery is the interval at which the chosen topic's history is requested. */
export const historyEvery = 9_000;

/**
 * The maximum number of topics whose counts are requested in one round. The others take turns:
 * topicsPerRound if none is chosen, one beside the chosen one. Topics that were never counted go
 * first, up to newPerRound.
 */
export const topicsPerRound = 4;
export const newPerRound = 20;

const waitMost = 15_000;

/** TopicView is the state of a topic that the page shows. It is replaced with each change. */
export interface TopicView {
  topic: Topic;
  /** Null until the topic's counts were loaded for the first time. */
  stats: Stats | null;
  /** When the topic's counts were last loaded, in milliseconds since 1970. */
  at: number;
  /** The server's samples of the last hour. Empty if the topic was never chosen. */
  history: readonly Sample[];
  /** When the history was last loaded. */
  historyAt: number;
  /** Messages per second. */
  produced: Rate;
  acked: Rate;
}

/**
 * Board holds all topics and their counts. It polls the server in rounds, one request at a time.
 * While the page is hidden it makes no requests.
 */
export class Board {
  /** The topics, ordered by name. */
  readonly topics = signal<readonly TopicView[]>([]);
  /** True once the topics were listed. */
  readonly loaded = signal(false);
  /** The chosen topic's groups with their settings. Null until they were loaded. */
  readonly groups = signal<readonly Group[] | null>(null);
  readonly connection: Connection["current"];
  /** The name of the chosen topic, or null. */
  readonly chosen = signal<string | null>(null);

  readonly #end = new AbortController();
  readonly #joined = new Set<() => Promise<void>>();
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
    batch(() => {
      this.chosen.value = name;
      this.groups.value = null;
    });
    this.wake();
  }

  /**
   * Polls now, because the page became visible, the network returned, or a call changed a topic. It
   * does nothing before start, after close, while the page is hidden, and when the connection has
   * ended.
   */
  wake(): void {
    this.#listed = Number.NEGATIVE_INFINITY;
    if (!this.#started || this.connection.value.state === "ended" || this.#end.signal.aborted) return;
    if (this.around.hidden()) return;
    if (this.#running) this.#again = true;
    else void this.#round();
  }

  /** Polls again after the connection ended. */
  retry(): void {
    this.#connection.restart();
    this.wake();
  }

  /**
   * Makes a request part of every round, after the chosen topic's counts, until the returned
   * function is called. The request reports its own failures and does not reject.
   */
  join(request: () => Promise<void>): () => void {
    this.#joined.add(request);
    return () => void this.#joined.delete(request);
  }

  /** Makes a call with a signal that is aborted by close. */
  async call<T>(make: (signal: AbortSignal) => Promise<T>): Promise<T> {
    return make(this.#end.signal);
  }

  /** Makes a call that changes a topic, and polls then. */
  async change<T>(make: (signal: AbortSignal) => Promise<T>): Promise<T> {
    try {
      return await this.call(make);
    } finally {
      this.wake();
    }
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
    this.#next(this.#again ? 0 : Math.max(0, began + pollEvery - this.around.now()));
  }

  #next(wait: number): void {
    this.#cancel = this.around.after(wait, () => {
      // When the page is visible again, wake begins a round.
      if (!this.around.hidden()) void this.#round();
    });
  }

  #broke(why: Failure): void {
    if (why.remedy !== "none") {
      this.#connection.end(why);
      return;
    }
    const wait = this.#backoff.next(why.retryAfter);
    this.#connection.to({ state: "waiting", reason: why.text, until: this.around.now() + wait });
    this.#next(wait);
  }

  async #ask(now: number): Promise<void> {
    if (now - this.#listed >= topicsEvery) {
      const topics = await this.call((signal) => this.client.topics(signal));
      if (this.#end.signal.aborted) return;
      this.#listed = now;
      this.#list(topics);
      await this.#askGroups();
    }
    const chosen = this.view(this.chosen.value);
    if (chosen) await this.#count(chosen, now - chosen.historyAt >= historyEvery);
    for (const request of [...this.#joined]) await request();
    for (const view of this.#due(chosen)) await this.#count(view, false);
  }

  // The topics to count besides the chosen one: the new ones, or the next in turn.
  #due(chosen: TopicView | undefined): readonly TopicView[] {
    const others = this.topics.value.filter((view) => view.topic.name !== chosen?.topic.name);
    const fresh = others.filter((view) => view.at === 0);
    if (fresh.length > 0) return fresh.slice(0, newPerRound);
    return others.sort((a, b) => a.at - b.at).slice(0, chosen ? 1 : topicsPerRound);
  }

  async #askGroups(): Promise<void> {
    const name = this.chosen.value;
    if (name === null || !this.view(name)) return;
    const groups = await this.#of(name, (signal) => this.client.groups(name, signal));
    if (groups && this.chosen.value === name) this.groups.value = groups;
  }

  async #count(view: TopicView, history: boolean): Promise<void> {
    const { name } = view.topic;
    if (this.#end.signal.aborted) return;
    const stats = await this.#of(name, (signal) => this.client.stats(name, history, signal));
    if (stats) this.#counted(name, stats, history);
  }

  // Makes a call about a topic. A topic that was deleted meanwhile is no failure: the topics are
  // listed again.
  async #of<T>(name: string, make: (signal: AbortSignal) => Promise<T>): Promise<T | undefined> {
    try {
      return await this.call(make);
    } catch (cause) {
      if (failure(cause).reason !== "TOPIC_NOT_FOUND" || !this.view(name)) throw cause;
      this.#listed = Number.NEGATIVE_INFINITY;
      return undefined;
    }
  }

  // A topic that was created again with the same name has a new history.
  #list(topics: readonly Topic[]): void {
    batch(() => {
      this.topics.value = topics.map((topic) => {
        const known = this.view(topic.name);
        if (known?.topic.createTime === topic.createTime) return { ...known, topic };
        const none = { stats: null, at: 0, history: [], historyAt: Number.NEGATIVE_INFINITY };
        return { topic, ...none, produced: new Rate(), acked: new Rate() };
      });
      this.loaded.value = true;
    });
  }

  #counted(name: string, stats: Stats, history: boolean): void {
    const at = this.around.now();
    this.topics.value = this.topics.value.map((view) => {
      if (view.topic.name !== name) return view;
      view.produced.add(at, stats.total.produced);
      view.acked.add(
        at,
        sum(stats.total.groups, (g) => g.acked),
      );
      const next = { ...view, stats, at };
      return history ? { ...next, history: merged(view.history, stats.history), historyAt: at } : next;
    });
  }
}
