/** Route is what the page shows: the list of sessions, a new conversation, or one session. */
export type Route =
  | { readonly show: "list" }
  | { readonly show: "new" }
  | { readonly show: "session"; readonly id: string };

const pattern = /^[A-Za-z0-9_-]{1,64}$/;

/** parseRoute returns the route of a fragment such as `#session=chat-1` or `#view=new`. */
export function parseRoute(fragment: string): Route {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const id = fields.get("session") ?? "";
  if (pattern.test(id)) return { show: "session", id };
  return { show: fields.get("view") === "new" ? "new" : "list" };
}

/** routeFragment returns the fragment of a route. It is empty for the list. */
export function routeFragment(route: Route): string {
  if (route.show === "session") return `#${new URLSearchParams({ session: route.id })}`;
  return route.show === "new" ? "#view=new" : "";
}
