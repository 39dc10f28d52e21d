/**
 * userName returns the name to show for a user id. Ids often say that they are ids (`user:ann`,
 * `auth0|ann`), or are random. The part before the name is left out, and a random id is shortened:
 * `3f2a9c1e…`. An email address and any other id are shown whole. Two users can have the same name,
 * so the id must be next to it as a title. `~erased` is the sender of the messages of erased users.
 */
export function userName(id: string): string {
  if (id === "~erased") return "Erased user";
  const name = id.replace(/^(?:users?[:/|_-]|[a-z0-9-]{2,24}\|)(?=.)/i, "");
  return random(name) ? `${name.slice(0, 8)}…` : name;
}

// A UUID, or at least 20 letters and digits that are hexadecimal or mix cases and digits.
function random(name: string): boolean {
  if (/^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(name)) return true;
  if (!/^[A-Za-z0-9_-]{20,}$/.test(name)) return false;
  return /^[0-9a-f]+$/i.test(name) || (/[a-z]/.test(name) && /[A-Z]/.test(name) && /\d/.test(name));
}
