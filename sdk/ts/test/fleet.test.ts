import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Code, fromStart } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient, States } from "./helper.js";

// Timers belong to the process, so tests of them have their own file.
describe.sequential("a node that is avoided", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
  });

  afterEach(() => {
    vi.useRealTimers();
  });

  it("is no longer avoided after a stream's first frame from it", async () => {
    const [a, b] = [new Fake(), new Fake()];
    const states = new States();
    // The nodes are not shuffled, and waits are 1 s.
    const client = newClient([a, b], { backoff: { base: 1_000, max: 1_000 }, random: () => 0.999 });
    const sub = client.subscribe(fromStart("room"), { onState: states.onState });
    const at = () => (sub.state === "live" ? states.all.at(-1)?.addr : sub.state);
    a.down = true;
    await vi.advanceTimersByTimeAsync(6_000);
    expect(at()).toBe("http://node-1");
    // A's second failure in a row avoids it for 10 s, B's first one for 5 s.
    b.down = true;
    b.endStreams();
    await vi.advanceTimersByTimeAsync(500);
    expect(at()).toBe("waiting");
    a.down = false;
    await vi.advanceTimersByTimeAsync(3_000);
    expect(at()).toBe("http://node-0");
    b.down = false;
    await vi.advanceTimersByTimeAsync(4_000);
    a.endStreams(failure(Code.ResourceExhausted, ErrorReason.SLOW_CONSUMER));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(at()).toBe("http://node-0");
    sub.close();
    await sub.done;
    expect(vi.getTimerCount()).toBeLessThanOrEqual(1); // The heartbeat of the fake server.
  });
});
