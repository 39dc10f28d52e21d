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

// Tests of a file run concurrently, so their clients, and with them their subscriptions, are closed
// after all tests.
const clients: Client[] = [];
afterAll(() => {
  for (const client of clients) {
    client.close();
  }
});

/** newClient creates a client of one or more fake servers. Its waits are short enough for tests. */
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

/** nextEvent returns the next event of the given kinds. Without kinds, it skips channel states. */
export async function nextEvent(sub: Subscription, ...kinds: Event["kind"][]): Promise<Event> {
  for (;;) {
    const e = await sub.next(AbortSignal.timeout(20_000));
    if (kinds.length === 0 ? e.kind !== "channel_state" : kinds.includes(e.kind)) {
      return e;
    }
  }
}

/**
 * wantEntries takes events until the channel's entries first to last have arrived. It fails on a
 * repeated, missing or misplaced one.
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

/** wantQuiet fails if an event other than a channel state arrives within 60 ms. */
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

/** eventually polls until check returns true, for at most 20 s. */
export async function eventually(check: () => boolean): Promise<void> {
  const deadline = Date.now() + 20_000;
  while (!check()) {
    if (Date.now() > deadline) {
      throw new Error(`not in time: ${check}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** rejected returns the error of a promise. It fails if the error is not of the wanted class. */
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
