/** The pattern of the names of topics and groups. A topic's name does not begin with two underscores. */
export const namePattern = /^[A-Za-z0-9_-]{1,64}$/;

/** The parts of a topic that are shown one at a time. */
export const views = ["overview", "partitions", "pending", "dead"] as const;

export type View = (typeof views)[number];

/** Where on the page one is: at a part of a topic, or with null at the list of all. */
export interface Place {
  topic: string | null;
  view: View;
}

/** Reads a fragment such as `#topic=jobs&view=dead`. What makes no sense is left out. */
export function readPlace(hash: string): Place {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const topic = fields.get("topic") ?? "";
  const view = views.find((v) => v === fields.get("view")) ?? "overview";
  return namePattern.test(topic) ? { topic, view } : { topic: null, view: "overview" };
}

/** Writes the fragment of a place, as a link has it. */
export function placeFragment({ topic, view }: Place): string {
  if (topic === null) return "#";
  return `#${new URLSearchParams(view === "overview" ? { topic } : { topic, view })}`;
}
