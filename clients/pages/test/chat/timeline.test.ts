import { describe, expect, test } from "vitest";
import { chunkSpan, Timeline } from "../../src/chat/model/timeline";
import type { Message } from "../../src/chat/model/types";
import { dice, FakeLog } from "./fake";

const limit = 20;

function loaded(timeline: Timeline): Message[] {
  return timeline.view().chunks.flatMap((c) => [...c.messages]);
}

describe("timeline", () => {
  // The log grows and changes. Its events are delivered in order, but late. Pages arrive at any
  // time, at least as new as the events that were delivered when they were requested. In any order,
  // the loaded messages must be a part of the log in its current state.
  test.each(Array.from({ length: 300 }, (_, seed) => seed))("any interleaving of events and pages, %i", (seed) => {
    const roll = dice(seed);
    const log = new FakeLog("c");
    const timeline = new Timeline();
    const events: Message[] = [];
    for (let n = roll(120); n > 0; n--) log.send("u", "before");
    let load: { kind: "newest" | "older" | "newer"; page: Message[] | null } | null = null;

    const write = () => {
      const recallable = log.messages.length > 0 && roll(3) === 0;
      const at = roll(Math.max(1, log.messages.length));
      if (recallable) events.push(log.change(at, roll(2) === 0 ? "edited" : "recalled", `changed ${log.seq}`));
      else events.push(log.send("u", `text ${log.seq}`));
    };
    const tell = () => {
      const event = events.shift();
      if (event) timeline.apply(event);
    };
    const ask = () => {
      if (load) return;
      const { chunks, atStart, atEnd } = timeline.view();
      const fresh = chunks.length === 0 && !atEnd;
      const kinds = (["newest", "older", "newer"] as const).filter(
        (k) => k === "newest" || (!fresh && (k === "older" ? !atStart : !atEnd)),
      );
      load = { kind: fresh ? "newest" : (kinds[roll(kinds.length)] ?? "newest"), page: null };
      timeline.begin();
    };
    const read = () => {
      if (!load || load.page) return;
      const { first, last } = timeline.bounds;
      const range = { newest: {}, older: { beforeSeq: Math.max(1, first) }, newer: { afterSeq: last } }[load.kind];
      load.page = log.page(range, limit);
    };
    const arrive = () => {
      if (!load?.page) return;
      timeline[load.kind](load.page, load.page.length < limit);
      timeline.end();
      load = null;
      if (roll(8) === 0) timeline.dropNewest(40);
      if (roll(8) === 0) timeline.dropOldest(40);
    };
    const steps = [write, write, tell, tell, ask, read, arrive, arrive];
    for (let n = 0; n < 400; n++) (steps[roll(steps.length)] as () => void)();
    ask();
    read();
    while (events.length > 0) tell();
    arrive();

    const found = loaded(timeline);
    const { atStart, atEnd } = timeline.view();
    const from = atStart ? 0 : (found[0]?.seq ?? 0);
    const to = atEnd ? Number.POSITIVE_INFINITY : (found.at(-1)?.seq ?? 0);
    expect(found).toEqual(log.messages.filter((m) => m.seq >= from && m.seq <= to));
    expect(timeline.size).toBe(found.length);
  });

  test("the response to a send can arrive before earlier messages of others", () => {
    const log = new FakeLog("c");
    const timeline = new Timeline();
    timeline.newest([], true);
    const [theirs, mine] = [log.send("alice", "1"), log.send("me", "2")];
    timeline.apply(mine);
    timeline.apply(theirs);
    timeline.apply(mine);
    expect(loaded(timeline)).toEqual([theirs, mine]);
  });

  test("only chunks that change are replaced", () => {
    const log = new FakeLog("c");
    for (let i = 0; i < 3 * chunkSpan; i++) log.send("u", "x");
    const timeline = new Timeline();
    timeline.newest(log.messages, true);
    const before = timeline.view().chunks;
    timeline.apply(log.change(chunkSpan + 5, "edited", "y"));
    timeline.apply(log.send("u", "new"));
    const after = timeline.view().chunks;
    expect(after.map((c, i) => c === before[i])).toEqual([true, false, true, false]);
    timeline.apply(log.messages[7] as Message);
    expect(timeline.view().chunks).toBe(after);
  });
});
