import { afterAll, expect } from "vitest";
import {
  Client,
  type ClientOptions,
  type Event,
  type Start,
  type StateChange,
  type Subscription,
} from "../src/index.js";
import type { Fake } from "./fake.js";

// Tests of a file run side by side, so what they leave is ended when all are done: the clients, and with them all else.
const clients: Client[] = [];
afterAll(() => {
  for (const client of clients) {
    client.close();
  }
});

/** newClient makes a client of a fake server, or of several; its waits are short enough for tests. */
export function newClient(servers: Fake | Fake[], options: ClientOptions = {}): Client {
  const byHost = new Map([servers].flat().map((server, n) => [`node-${n}`, server]));
  const route: typeof fetch = async (input, init) => {
    const host = new URL(String(input)).hostname;
    return (byHost.get(host) as Fake).fetch(input, init);
  };
  const client = new Client([...byHost.keys()], {
    token: "tester",
    backoff: { base: 5, max: 50 },
    fetch: route,
    ...options,
  });
  clients.push(client);
  return client;
}

/** States records a subscription's states. */
export class States {
  readonly all: StateChange[] = [];
  readonly onState = (change: StateChange) => {
    this.all.push(change);
  };

  get names(): string[] {
    return this.all.map((c) => c.state);
  }

  get waits(): StateChange[] {
    return this.all.filter((c) => c.state === "waiting");
  }
}

export function subscribe(client: Client, starts: Start | Start[], states = new States()): Subscription {
  return client.subscribe(starts, { onState: states.onState });
}

/** nextEvent takes the next event of one of the kinds; without kinds, any but states. */
export async function nextEvent(sub: Subscription, ...kinds: Event["kind"][]): Promise<Event> {
  for (;;) {
    const e = await sub.next(AbortSignal.timeout(20_000));
    if (kinds.length === 0 ? e.kind !== "channel_state" : kinds.includes(e.kind)) {
      return e;
    }
  }
}

/**
 * wantEntries takes events until the channel's entries first..last have come, and fails on any that is repeated, missing or
 * out of order.
 */
export async function wantEntries(sub: Subscription, channel: string, first: number, last: number): Promise<void> {
  for (let want = first; want <= last; want++) {
    let e = await nextEvent(sub);
    while (e.channelId !== channel) {
      e = await nextEvent(sub);
    }
    expect(`${e.kind} ${e.seq}`).toMatch(new RegExp(`^(sent|edited|recalled) ${want}$`));
  }
}

/** wantQuiet fails if an event of any channel but a state arrives within a moment. */
export async function wantQuiet(sub: Subscription): Promise<void> {
  const moment = AbortSignal.timeout(60);
  for (;;) {
    try {
      const e = await sub.next(moment);
      expect(e.kind).toBe("channel_state");
    } catch (err) {
      if (err === moment.reason) {
        return;
      }
      throw err;
    }
  }
}

/** eventually polls until check gives true. */
export async function eventually(check: () => boolean): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!check()) {
    if (Date.now() > deadline) {
      throw new Error(`not in time: ${check}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** rejected gives what a promise rejects with, as the class that is wanted. */
export async function rejected<E>(promise: Promise<unknown>, want: abstract new (...args: never[]) => E): Promise<E> {
  const err = await promise.then(
    (value) => {
      throw new Error(`resolved with ${JSON.stringify(value)}`);
    },
    (reason) => reason,
  );
  expect(err).toBeInstanceOf(want);
  return err as E;
}
