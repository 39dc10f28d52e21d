import { expect, test } from "vitest";
import { userName } from "../../src/ui/name";

test.each([
  ["ann", "ann"],
  ["user:ann", "ann"],
  ["user-ann", "ann"],
  ["users/ann.smith", "ann.smith"],
  ["auth0|5f7c8ec7c33c6c004bbafe82", "5f7c8ec7…"],
  ["3f2a9c1e-8d4b-4c11-9b7a-0a1b2c3d4e5f", "3f2a9c1e…"],
  ["user-3f2a9c1e8d4b4c119b7a0a1b", "3f2a9c1e…"],
  ["V1StGXR8Z5jdHi6BmyT42", "V1StGXR8…"],
  ["ann@example.org", "ann@example.org"],
  ["user", "user"],
  ["~erased", "Erased user"],
  ["user-", "user-"],
  ["userland", "userland"],
  ["reader-of-room-1a2b3c4d", "reader-of-room-1a2b3c4d"],
  ["supercalifragilisticexpialidocious", "supercalifragilisticexpialidocious"],
])("%s is shown as %s", (id, name) => {
  expect(userName(id)).toBe(name);
});
