import { batch, computed, signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import type { Board } from "./board";
import type { Letter, Selection } from "./types";

/** How many dead letters are loaded at a time. */
export const lettersPerPage = 25;

// How many ids one call may name.
const idsPerCall = 1_000;

/** What is done to dead letters, and how far it is. */
export interface Work {
  what: "replay" | "purge";
  done: number;
}

/** The dead letters of a topic, or of one of its groups: some pages of them, those that are selected, and what is done to them. */
export class Letters {
  readonly list = signal<readonly Letter[]>([]);
  readonly loaded = signal(false);
  readonly loading = signal(false);
  /** Whether there are older ones. */
  readonly more = signal(false);
  /** Ids of the list. */
  readonly selected = signal<ReadonlySet<string>>(new Set());
  /** Ids of the list whose content is shown. */
  readonly open = signal<ReadonlySet<string>>(new Set());
  /** Whether the list is no longer what the server has. It is not changed under the reader's hands. */
  readonly stale = signal(false);
  readonly error = signal("");
  /** What the last work came to; empty for nothing. */
  readonly note = signal("");
  readonly work = signal<Work | null>(null);
  readonly all = computed(() => this.list.value.length > 0 && this.selected.value.size === this.list.value.length);
  #next = "";
  #pages = 0;
  #count: number | undefined; // of the topic's dead letters, that the list goes with; undefined: the next one told
  #told: number | undefined; // the newest of these counts
  #ended = false;
  #version = 0;

  constructor(
    readonly board: Board,
    readonly topic: string,
    /** Empty is all groups. */
    readonly group: string,
  ) {}

  /** Stops whatever is under way before its next call. */
  close(): void {
    this.#ended = true;
  }

  /** Loads the newest. */
  async load(): Promise<void> {
    this.#count = this.#told;
    await this.#page("");
    if (!this.#ended && this.#told !== undefined && this.#told !== this.#count) this.counted(this.#told);
  }

  /** Loads the next older ones. */
  async loadMore(): Promise<void> {
    if (this.more.value && !this.loading.value) await this.#page(this.#next);
  }

  /**
   * Hears, each time that it is counted, how many dead letters the topic has now. If these are not those of the list, it is
   * loaded again, or is stale where somebody is reading or choosing.
   */
  counted(deadLetters: number): void {
    this.#told = deadLetters;
    if (this.loading.value || this.work.value) return;
    const before = this.#count;
    this.#count = deadLetters;
    // A whole list is held against the count itself: some may have gone and as many come between two counts.
    const whole = this.group === "" && !this.more.value;
    if (whole ? this.list.value.length === deadLetters : before === undefined || before === deadLetters) return;
    const busy = this.selected.value.size > 0 || this.open.value.size > 0 || this.#pages > 1;
    if (busy) this.stale.value = true;
    else void this.load();
  }

  select(id: string, on: boolean): void {
    this.selected.value = changed(this.selected.value, id, on);
  }

  selectAll(on: boolean): void {
    this.selected.value = new Set(on ? this.list.value.map((letter) => letter.id) : []);
  }

  unfold(id: string, on: boolean): void {
    this.open.value = changed(this.open.value, id, on);
  }

  /** Replays the dead letters with these ids; with null, all of the topic or of the group. */
  async replay(ids: readonly string[] | null): Promise<void> {
    await this.#do("replay", ids, async (which) => {
      const { topic, board } = this;
      const { replayed, more } = await board.call((end) => board.client.replay(topic, which, end));
      return { done: replayed, more };
    });
  }

  /**
   * Purges the dead letters with these ids; with null, all of the topic or of the group. confirm is the topic's name as
   * the user typed it.
   */
  async purge(ids: readonly string[] | null, confirm: string): Promise<void> {
    await this.#do("purge", ids, async (which) => {
      const { topic, board } = this;
      return { done: await board.call((end) => board.client.purge(topic, which, confirm, end)), more: false };
    });
  }

  // What the calls select. An empty list of ids selects nothing, so it makes no call.
  #selections(ids: readonly string[] | null): Selection[] {
    if (ids !== null) return chunks(ids).map((some) => ({ kind: "ids", ids: some }));
    return [this.group === "" ? { kind: "all" } : { kind: "group", group: this.group }];
  }

  async #do(
    what: Work["what"],
    ids: readonly string[] | null,
    call: (which: Selection) => Promise<{ done: number; more: boolean }>,
  ): Promise<void> {
    if (this.work.value) return;
    let done = 0;
    let problem = "";
    batch(() => {
      this.work.value = { what, done };
      this.note.value = "";
      this.error.value = "";
    });
    try {
      for (const which of this.#selections(ids)) {
        // A call with ids handles all of them. A call without handles so many, and tells whether to call again.
        for (let more = true; more && !this.#ended; ) {
          const result = await call(which);
          done += result.done;
          this.work.value = { what, done };
          more = which.kind !== "ids" && result.more;
        }
      }
    } catch (cause) {
      problem = failure(cause).text;
    }
    if (this.#ended) return;
    this.#told = undefined; // from before this
    await this.load();
    if (this.#ended) return;
    this.work.value = null;
    batch(() => {
      const verb = what === "replay" ? "Replayed" : "Purged";
      this.note.value = problem && done === 0 ? "" : `${verb} ${done} ${done === 1 ? "dead letter" : "dead letters"}.`;
      if (problem) this.error.value = `Not ${done > 0 ? "all " : ""}${verb.toLowerCase()}: ${problem}`;
    });
    this.board.wake();
  }

  async #page(from: string): Promise<void> {
    const version = ++this.#version;
    this.loading.value = true;
    try {
      const { topic, group, board } = this;
      const page = await board.call((end) => board.client.letters(topic, group, from, lettersPerPage, end));
      if (this.#ended || version !== this.#version) return;
      batch(() => {
        const before = from === "" ? [] : this.list.value;
        const known = new Set(before.map((letter) => letter.id));
        this.list.value = [...before, ...page.letters.filter((letter) => !known.has(letter.id))];
        const there = new Set(this.list.value.map((letter) => letter.id));
        this.selected.value = new Set([...this.selected.value].filter((id) => there.has(id)));
        this.open.value = new Set([...this.open.value].filter((id) => there.has(id)));
        this.#pages = from === "" ? 1 : this.#pages + 1;
        this.#next = page.next;
        this.more.value = page.next !== "";
        this.loaded.value = true;
        this.error.value = "";
        if (from === "") this.stale.value = false;
      });
    } catch (cause) {
      if (!this.#ended && version === this.#version) this.error.value = failure(cause).text;
    } finally {
      if (version === this.#version) this.loading.value = false;
    }
  }
}

function changed(ids: ReadonlySet<string>, id: string, on: boolean): ReadonlySet<string> {
  const next = new Set(ids);
  if (on) next.add(id);
  else next.delete(id);
  return next;
}

function chunks(ids: readonly string[]): string[][] {
  const parts: string[][] = [];
  for (let i = 0; i < ids.length; i += idsPerCall) parts.push(ids.slice(i, i + idsPerCall));
  return parts;
}
