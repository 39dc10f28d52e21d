import { describe, expect, test } from "vitest";
import { Backoff } from "../../src/connection/backoff";
import { failure } from "../../src/connection/failure";
import { Connection, type ConnectionState } from "../../src/connection/state";

const connecting: ConnectionState = { state: "connecting" };
const live: ConnectionState = { state: "live" };
const waiting: ConnectionState = { state: "waiting", reason: "away", until: 7 };
const failed: ConnectionState = { state: "ended", reason: "no", end: "failed" };
const refused: ConnectionState = { state: "ended", reason: "old", end: "token" };

function in_(...states: ConnectionState[]): Connection {
  const connection = new Connection();
  for (const state of states) connection.to(state);
  return connection;
}

describe("connection", () => {
  test.each([
    ["connecting", [], { live: true, waiting: true, failed: true, refused: true }],
    ["live", [live], { connecting: true, waiting: true, failed: true, refused: true }],
    ["waiting", [waiting], { connecting: true, live: true, waiting: true, failed: true, refused: true }],
    ["failed", [failed], { connecting: false, live: false, waiting: false, refused: true }],
    ["refused", [refused], { connecting: false, live: false, waiting: false, failed: false }],
  ] as const)("from %s it goes only where the table says", (_, before, table) => {
    const all = { connecting, live, waiting, failed, refused };
    for (const [name, allowed] of Object.entries(table)) {
      const next = all[name as keyof typeof all];
      const connection = in_(...before);
      connection.to(next);
      expect(connection.current.value === next, name).toBe(allowed);
    }
  });

  test("only restart leaves the state ended", () => {
    const connection = in_(refused);
    connection.restart();
    expect(connection.current.value).toEqual(connecting);
    const other = in_(live);
    other.restart();
    expect(other.current.value).toBe(live);
  });

  test("a failure ends the connection with the user's remedy", () => {
    for (const [reason, end] of [
      ["TOKEN_EXPIRED", "token"],
      ["CAPABILITY_MISSING", "capability"],
      ["INTERNAL", "failed"],
    ]) {
      const connection = in_(live);
      connection.end(failure({ reason, message: "x" }));
      expect(connection.current.value).toMatchObject({ state: "ended", end });
    }
  });
});

describe("backoff", () => {
  test("waits double up to the maximum, are at least half of it, and a success resets them", () => {
    const shortest = new Backoff(1_000, 15_000, () => 0);
    expect([0, 1, 2, 3, 4, 5].map(() => shortest.next())).toEqual([500, 1_000, 2_000, 4_000, 7_500, 7_500]);
    shortest.reset();
    expect(shortest.next(3_000)).toBe(3_500);
    const longest = new Backoff(1_000, 15_000, () => 1);
    expect([0, 1].map(() => longest.next())).toEqual([1_000, 2_000]);
    for (let i = 0; i < 2_000; i++) expect(longest.next()).toBeLessThanOrEqual(15_000);
  });
});
