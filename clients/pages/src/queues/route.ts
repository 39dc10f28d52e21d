/**
 * namePattern matches the names of topics and groups. A topic's name does not begin with two
 * underscores.
 */
export const namePattern = /^[A-Za-z0-9_-]{1,64}$/;

/** views are the parts of a topic, of which the page shows one at a time. */
export const views = ["overview", "partitions", "pending", "dead"] as const;

export type View = (typeof views)[number];

/** Route is a route on the page: a part of a topic, or the list of topics if topic is null. */
export interface Route {
  topic: string | null;
  view: View;
}

/** parseRoute parses a fragment such as `#topic=jobs&view=dead`. It ignores invalid values. */
export function parseRoute(hash: string): Route {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const topic = fields.get("topic") ?? "";
  const view = views.find((v) => v === fields.get("view")) ?? "overview";
  return namePattern.test(topic) ? { topic, view } : { topic: null, view: "overview" };
}

/** routeFragment returns the fragment of a route, for a link. */
export function routeFragment({ topic, view }: Route): string {
  if (topic === null) return "#";
  return `#${new URLSearchParams(view === "overview" ? { topic } : { topic, view })}`;
}
