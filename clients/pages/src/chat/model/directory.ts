import { computed, type ReadonlySignal, signal } from "@preact/signals";
import type { ChannelView } from "./channels";
import type { ChatClient, Environment, Finding } from "./types";

/** channelPattern matches a channel's id. */
export const channelPattern = /^[A-Za-z0-9_-]{1,128}$/;

const searchAfter = 150; // milliseconds without another key
const looking = { kind: "looking" } as const;

/**
 * Offer is a channel besides the listed ones that the user can open: one that exists (`open`), one
 * that the first message will create (`create`), or one of which that is not known (`unknown`).
 * Others cannot be opened: `looking` is not known yet, `members` is for members only, `absent` does
 * not exist and the token does not allow to create it, `invalid` is not an id.
 */
export interface Offer {
  readonly id: string;
  readonly kind: "open" | "create" | "unknown" | "looking" | "members" | "absent" | "invalid";
  /** The number of messages. Set for `open`. */
  readonly count?: number;
}

/** Search is the result of what the user entered. */
export interface Search {
  /** The listed channels that match, the best ones first. All of them if nothing is entered. */
  readonly matches: readonly ChannelView[];
  readonly offers: readonly Offer[];
  /** The channel that Enter opens, as far as it is known. Empty if there is none. */
  readonly first: string;
}

/**
 * Directory finds channels by a text: among the listed channels, and by looking up the id that the
 * text spells. The API lists only the user's own channels, so another one is found by its exact id,
 * or by the same in lower case, with a capital, or in capitals. A channel is offered for creation
 * only if the server says that there is none of these.
 */
export class Directory {
  /** What the user entered. */
  readonly text = signal("");
  readonly result: ReadonlySignal<Search>;

  readonly #client: Pick<ChatClient, "can" | "lookup">;
  readonly #environment: Pick<Environment, "after">;
  readonly #list: ReadonlySignal<readonly ChannelView[]>;
  readonly #connected: () => boolean;
  readonly #found = signal<ReadonlyMap<string, Finding>>(new Map());
  readonly #lookups = new Map<string, Promise<Finding>>();
  #cancel = () => {};

  /** connected reports whether the server can be asked. Otherwise nothing is looked up. */
  constructor(
    client: Pick<ChatClient, "can" | "lookup">,
    list: ReadonlySignal<readonly ChannelView[]>,
    environment: Pick<Environment, "after">,
    connected: () => boolean,
  ) {
    this.#client = client;
    this.#environment = environment;
    this.#list = list;
    this.#connected = connected;
    this.result = computed(() => this.#search());
  }

  /** Searches for a text. An empty one ends the search. */
  search(text: string): void {
    this.text.value = text;
    this.#cancel();
    if (this.#id === "") {
      this.#lookups.clear();
      this.#found.value = new Map();
      return;
    }
    this.#cancel = this.#environment.after(searchAfter, () => this.#lookUp());
  }

  /**
   * Returns the channel to open for what the user entered, after the look-ups. Null if there is
   * none, or if the user entered something else meanwhile.
   */
  async choose(): Promise<string | null> {
    const id = this.#id;
    if (id === "" || this.#known(id)) return id || null;
    this.#cancel();
    await Promise.all(this.#lookUp());
    return this.#id === id ? this.result.value.first || null : null;
  }

  // The id that the text spells: ids have no spaces.
  get #id(): string {
    return this.text.value.trim().replace(/^#/, "").replace(/\s+/g, "-");
  }

  #known(id: string): ChannelView | undefined {
    return this.#list.value.find((c) => c.id === id);
  }

  // The ids to look up. An id that differs from a listed channel only in case is not one of them.
  #candidates(): string[] {
    const id = this.#id;
    const lower = id.toLowerCase();
    if (!channelPattern.test(id) || this.#list.value.some((c) => c.id.toLowerCase() === lower)) return [];
    return [...new Set([id, lower, lower.charAt(0).toUpperCase() + lower.slice(1), id.toUpperCase()])];
  }

  #lookUp(): Promise<Finding>[] {
    return this.#candidates().map((id) => {
      const underway = this.#lookups.get(id);
      if (underway) return underway;
      const lookup = this.#connected() ? this.#client.lookup(id) : Promise.resolve<Finding>({ kind: "unknown" });
      const noted = lookup.then((finding) => {
        if (this.#lookups.get(id) === noted) this.#found.value = new Map(this.#found.value).set(id, finding);
        return finding;
      });
      this.#lookups.set(id, noted);
      return noted;
    });
  }

  #search(): Search {
    const id = this.#id;
    if (id === "") return { matches: this.#list.value, offers: [], first: "" };
    const matches = ranked(this.#list.value, id.toLowerCase());
    if (!channelPattern.test(id)) return { matches, offers: [{ id, kind: "invalid" }], first: matches[0]?.id ?? "" };
    const offers = this.#offers(id);
    const exact = matches[0]?.id.toLowerCase() === id.toLowerCase() ? matches[0].id : "";
    const exists = offers.find(({ kind }) => kind === "open" || kind === "members")?.id;
    const made = offers.find(({ kind }) => kind === "create" || kind === "unknown")?.id;
    return { matches, offers, first: exact || exists || matches[0]?.id || made || "" };
  }

  #offers(id: string): Offer[] {
    const candidates = this.#candidates();
    const all = candidates.map((one) => ({ id: one, ...(this.#found.value.get(one) ?? looking) }));
    const existing = all.filter(({ kind }) => kind === "open" || kind === "members") as Offer[];
    const own = all[0];
    if (!own || existing.length > 0) return existing;
    if (all.some(({ kind }) => kind === "looking")) return [{ id, kind: "looking" }];
    if (own.kind === "unknown") return [{ id, kind: "unknown" }];
    return [{ id, kind: this.#client.can("send", id) ? "create" : "absent" }];
  }
}

// The channels whose ids contain the text: first the same id, then those that begin with it. The
// order of the list is kept otherwise.
function ranked(list: readonly ChannelView[], text: string): ChannelView[] {
  const ranks: [ChannelView[], ChannelView[], ChannelView[]] = [[], [], []];
  for (const channel of list) {
    const at = channel.id.toLowerCase().indexOf(text);
    if (at >= 0) ranks[at > 0 ? 2 : channel.id.length > text.length ? 1 : 0].push(channel);
  }
  return ranks.flat();
}
