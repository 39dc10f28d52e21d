import { batch, computed, signal } from "@preact/signals";
import { failure } from "../../connection/failure";
import type { Board } from "./board";
import type { Letter, LetterQuery, Selection } from "./types";

/** lettersPerPage is the number of dead letters per page. */
export const lettersPerPage = 25;

// The maximum number of ids per call.
const idsPerCall = 1_000;

/** Work is a running operation on dead letters and the number of letters that it has handled. */
export interface Work {
  what: "replay" | "purge";
  done: number;
}

/**
 * Letters holds the dead letters of a topic or of one of its groups: the loaded pages, the
 * selection, and the running operation.
 */
export class Letters {
  readonly list = signal<readonly Letter[]>([]);
  readonly loaded = signal(false);
  readonly loading = signal(false);
  /** True if there are older dead letters. */
  readonly more = signal(false);
  /** The ids of the selected letters. */
  readonly selected = signal<ReadonlySet<string>>(new Set());
  /** The ids of the letters whose content is shown. */
  readonly open = signal<ReadonlySet<string>>(new Set());
  /**
   * True if the server's dead letters no longer match the list, which is not reloaded while the
   * user works with it.
   */
  readonly stale = signal(false);
  readonly error = signal("");
  /** The result of the last operation. Empty if there is none. */
  readonly note = signal("");
  readonly work = signal<Work | null>(null);
  readonly all = computed(() => this.list.value.length > 0 && this.selected.value.size === this.list.value.length);
  #next = "";
  #pages = 0;
  #count: number | undefined; // the topic's number of dead letters for which the list was loaded; undefined: the next one counted
  #told: number | undefined; // the number that was counted last
  #ended = false;
  #version = 0;

  constructor(
    readonly board: Board,
    readonly query: LetterQuery,
  ) {}

  /** Stops a running operation before its next call. */
  close(): void {
    this.#ended = true;
  }

  /** Loads the newest page and replaces the list with it. */
  async load(): Promise<void> {
    this.#count = this.#told;
    await this.#page("");
    if (!this.#ended && this.#told !== undefined && this.#told !== this.#count) this.counted(this.#told);
  }

  /** Loads the next older page. */
  async loadMore(): Promise<void> {
    if (this.more.value && !this.loading.value) await this.#page(this.#next);
  }

  /**
   * Applies the topic's current number of dead letters. If it does not match the list, the list is
   * loaded again, or becomes stale if the user has selected or opened letters or loaded more pages.
   */
  counted(deadLetters: number): void {
    this.#told = deadLetters;
    if (this.loading.value || this.work.value) return;
    const before = this.#count;
    this.#count = deadLetters;
    // A complete list is compared with the number itself: between two counts some letters may have
    // gone and as many come.
    const whole = this.query.group === "" && this.query.code === "" && !this.more.value;
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

  /**
   * Replays the dead letters with these ids, or for null all of the topic or of the group: to their
   * groups, or to another topic.
   */
  async replay(ids: readonly string[] | null, toTopic = ""): Promise<void> {
    await this.#do("replay", ids, async (which) => {
      const { board } = this;
      const { topic } = this.query;
      const { replayed, more } = await board.call((end) => board.client.replay(topic, which, toTopic, end));
      return { done: replayed, more };
    });
  }

  /**
   * Purges the dead letters with these ids, or for null all of the topic or of the group. confirm
   * is the topic's name as the user typed it.
   */
  async purge(ids: readonly string[] | null, confirm: string): Promise<void> {
    await this.#do("purge", ids, async (which) => {
      const { board } = this;
      const { topic } = this.query;
      return { done: await board.call((end) => board.client.purge(topic, which, confirm, end)), more: false };
    });
  }

  // Returns the selection of each call. An empty list of ids selects nothing, so it makes no call.
  #selections(ids: readonly string[] | null): Selection[] {
    if (ids !== null) return chunks(ids).map((some) => ({ kind: "ids", ids: some }));
    const { group } = this.query;
    return [group === "" ? { kind: "all" } : { kind: "group", group }];
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
        // A call with ids handles all of them. Any other call handles a limited number and reports
        // whether there are more.
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
    this.#told = undefined; // it was counted before the operation
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
      const { board, query } = this;
      const page = await board.call((end) => board.client.letters(query, from, lettersPerPage, end));
      if (this.#ended || version !== this.#version) return;
      batch(() => {
        const before = from === "" ? [] : this.list.value;
        const known = new Set(before.map((letter) => letter.id));
        this.list.value = [...before, ...page.items.filter((letter) => !known.has(letter.id))];
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
