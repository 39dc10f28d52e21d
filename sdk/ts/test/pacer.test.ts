import { describe, expect, it } from "vitest";
import { Waits } from "../src/backoff.js";
import { Caller } from "../src/caller.js";
import { Endpoints, type Rpc } from "../src/endpoint.js";
import { Code, ParleyError } from "../src/index.js";
import { Pacer, type StreamEnd } from "../src/pacer.js";
import { Heads } from "../src/position.js";
import { Tokens } from "../src/token.js";

/** pacer returns a Pacer that draws half of each bound. The first bound is 100 ms. */
function pacer(): Pacer {
  const endpoints = new Endpoints(["a", "b"], () => ({}) as Rpc, Math.random);
  const waits = new Waits({ base: 100, max: 1_000 }, () => 0.5);
  return new Pacer(new Caller(endpoints, new Tokens(undefined, ""), waits, new Heads(), 5_000, 30_000, () => {}));
}

function end(changes: Partial<StreamEnd>): StreamEnd {
  const error = new ParleyError({ code: Code.Unavailable, retryable: true });
  return { error, token: "", liveFor: 0, failsOver: false, ...changes };
}

describe("between two streams", () => {
  it("waits get longer, until a stream was stable", () => {
    const p = pacer();
    const own = (changes: Partial<StreamEnd>) => p.next(end(changes))?.backoff;
    expect([own({}), own({}), own({ liveFor: 9_000 }), own({})]).toEqual([50, 100, 200, 400]);
    expect([own({ liveFor: 10_000 }), own({})]).toEqual([50, 100]);
    expect(p.next(end({ error: new ParleyError({ reason: "NOT_SENDER" }) }))).toBeUndefined();
  });

  it("only the first failure in a row moves to another node at once", () => {
    const p = pacer();
    const own = (changes: Partial<StreamEnd>) => p.next(end({ failsOver: true, ...changes }))?.backoff;
    expect([own({}), own({}), own({ liveFor: 500 })]).toEqual([0, 100, 200]);
    // The stream was live for 1 s, and the next one goes to another node.
    expect([own({ liveFor: 1_000 }), own({})]).toEqual([0, 100]);
  });

  it("the server's advice is followed, with a backoff added if streams end too soon", () => {
    const p = pacer();
    const next = (changes: Partial<StreamEnd>) => p.next(end({ error: undefined, advice: 1_000, ...changes }));
    expect(next({ liveFor: 1_000 })).toEqual({ retryAfter: 500, backoff: 0 });
    expect(next({ liveFor: 1_000, failsOver: true })).toEqual({ retryAfter: 500, backoff: 0 });
    expect([next({}), next({})]).toEqual([
      { retryAfter: 500, backoff: 50 },
      { retryAfter: 500, backoff: 100 },
    ]);
  });
});
