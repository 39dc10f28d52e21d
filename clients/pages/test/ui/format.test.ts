import { describe, expect, test } from "vitest";
import { hue, initials } from "../../src/ui/avatar";
import { dayName } from "../../src/ui/format";

describe("users and days", () => {
  test.each([
    ["alice", "AL"],
    ["auth0|42", "A4"],
    ["mary.ann@example.org", "MA"],
    ["x", "X"],
    ["|", "|"],
  ])("initials of %s", (user, want) => {
    expect(initials(user)).toBe(want);
    expect(hue(user)).toBe(hue(user));
  });

  test("days have names", () => {
    const now = new Date(2026, 2, 1, 12);
    expect(dayName(new Date(2026, 2, 1), now)).toBe("today");
    expect(dayName(new Date(2026, 1, 28, 23), now)).toBe("yesterday");
    expect(dayName(new Date(2025, 1, 28), now)).toContain("2025");
    expect(dayName(new Date(2026, 1, 3), now)).not.toContain("2026");
  });
});
