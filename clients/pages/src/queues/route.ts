import { type ListedState, listedStates } from "./model/types";

/**
 * namePattern matches the names of topics and groups. A topic's name does not begin with two
 * underscores.
 */
export const namePattern = /^[A-Za-z0-9_-]{1,64}$/;

/** views are the parts of a topic, of which the page shows one at a time. */
export const views = ["overview", "jobs", "consumers", "partitions", "dead", "settings"] as const;

export type View = (typeof views)[number];

/** Route is a route on the page: a part of a topic, or the list of topics if topic is null. */
export interface Route {
  topic: string | null;
  view: View;
  /** The chosen group. Empty means the first one, or all groups of a list. */
  group: string;
  /** The listed state, in the part `jobs`. Empty means all states. */
  state: ListedState | "";
  /** The id of the shown message, in the part `jobs`. Empty if the list is shown. */
  job: string;
}

/** overview is the route to all topics. */
export const overview: Route = { topic: null, view: "overview", group: "", state: "", job: "" };

/** routeTo returns the route to a part of a topic. */
export function routeTo(topic: string, part: Partial<Route> = {}): Route {
  return { ...overview, topic, ...part };
}

/** parseRoute parses a fragment such as `#topic=jobs&view=dead`. It ignores invalid values. */
export function parseRoute(hash: string): Route {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const field = (name: string) => fields.get(name) ?? "";
  if (!namePattern.test(field("topic"))) return overview;
  const view = views.find((v) => v === field("view")) ?? "overview";
  const group = namePattern.test(field("group")) ? field("group") : "";
  const jobs = view === "jobs";
  const state = (jobs && listedStates.find((s) => s === field("state"))) || "";
  return { topic: field("topic"), view, group, state, job: jobs ? field("job").slice(0, 128) : "" };
}

/** routeFragment returns the fragment of a route, for a link. */
export function routeFragment({ topic, view, group, state, job }: Route): string {
  if (topic === null) return "#";
  const fields = Object.entries({ topic, view: view === "overview" ? "" : view, group, state, job });
  return `#${new URLSearchParams(fields.filter(([, value]) => value !== ""))}`;
}
