import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Alarm, now, sleep } from "../src/clock.js";
import { Code, fromStart } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient, nextEvent, rejected, States, wantEntries } from "./helper.js";

/** Page is a fake of the browser's document and window, as far as the SDK uses them. */
class Page extends EventTarget {
  visibilityState = "hidden";
  listeners = 0;

  override addEventListener(...args: Parameters<EventTarget["addEventListener"]>): void {
    this.listeners++;
    super.addEventListener(...args);
  }

  override removeEventListener(...args: Parameters<EventTarget["removeEventListener"]>): void {
    this.listeners--;
    super.removeEventListener(...args);
  }
}

let page: Page;

/** asleep advances the wall clock and nothing else, as a sleeping machine does. */
function asleep(ms: number): void {
  vi.setSystemTime(Date.now() + ms);
}

async function awake(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
}

// Timers belong to the process, so these tests cannot run concurrently.
describe.sequential("a machine that sleeps", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
    page = new Page();
    vi.stubGlobal("addEventListener", page.addEventListener.bind(page));
    vi.stubGlobal("removeEventListener", page.removeEventListener.bind(page));
    vi.stubGlobal("document", page);
  });

  afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  it("has a clock that includes the sleep and never goes back", async () => {
    const began = now();
    // The duration of a sleep is accurate to about a second.
    const since = () => Math.round((now() - began) / 2_000) * 2;
    await awake(4_000);
    expect(since()).toBe(4);
    asleep(3_600_000);
    expect(since()).toBe(3_604);
    asleep(-7_200_000);
    expect(since()).toBe(3_604);
    await awake(4_000);
    expect(since()).toBe(3_608);
  });

  it("has alarms that ring once after it wakes", async () => {
    let rung = 0;
    const alarm = new Alarm(() => rung++);
    alarm.set(37_500);
    await awake(37_000);
    alarm.set(37_500);
    await awake(37_000);
    expect(rung).toBe(0);
    asleep(60_000);
    await awake(1_000);
    expect(rung).toBe(1);
    await awake(100_000);
    expect(rung).toBe(1);
    alarm.set(10_000);
    alarm.pause();
    await awake(20_000);
    expect(rung).toBe(1);
    alarm.set(10_000);
    asleep(10_100);
    page.visibilityState = "visible";
    page.dispatchEvent(new Event("visibilitychange"));
    await awake(100);
    expect(rung).toBe(2);
    alarm.set(10_000);
    alarm.close();
    await awake(20_000);
    expect(rung).toBe(2);
    expect(page.listeners).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("leaves a stream that died during the sleep at once", async () => {
    const server = new Fake();
    const states = new States();
    const client = newClient(server);
    const sub = client.subscribe(fromStart("room"), { onState: states.onState });
    await nextEvent(sub, "channel_state");
    await awake(60_000);
    expect(states.names).toEqual(["connecting", "live"]);
    server.silent = true;
    asleep(3_600_000);
    await awake(1_000);
    server.silent = false;
    await awake(1_000);
    expect(states.names).toEqual(["connecting", "live", "waiting", "connecting", "live"]);
    expect(states.waits[0]?.error?.message).toContain("no frame");
    server.post("room");
    await wantEntries(sub, "room", 1, 1);
    sub.close();
    await sub.done;
    expect(page.listeners).toBe(0);
  });

  it("ends an attempt whose limit passed during the sleep", async () => {
    const server = new Fake();
    server.faults(1, "SendMessage", { hang: true });
    const sending = newClient(server, { callTimeout: 0 }).send("room", "hello");
    await awake(1_000);
    asleep(3_600_000);
    await awake(2_000);
    expect(server.of("SendMessage").length).toBe(2);
    await sending;
  });

  it("ends a call whose time limit passed during the sleep", async () => {
    const server = new Fake();
    server.faults(1, "SendMessage", { hang: true });
    const sending = rejected(newClient(server).send("room", "hello"), Error);
    await awake(1_000);
    asleep(3_600_000);
    await awake(2_000);
    expect((await sending).name).toBe("TimeoutError");
    expect(page.listeners).toBe(0);
  });

  it("keeps a stream whose frames arrived during the sleep", async () => {
    let rung = 0;
    const alarm = new Alarm(() => rung++);
    alarm.set(5_000);
    asleep(60_000);
    // The timer runs first after waking, and the frame arrives right after it.
    setTimeout(() => alarm.set(5_000), 1_010);
    await awake(4_000);
    expect(rung).toBe(0);
    await awake(3_000);
    expect(rung).toBe(1);
    alarm.close();
  });

  it("keeps a stream after a short silence", async () => {
    const server = new Fake();
    const states = new States();
    const sub = newClient(server).subscribe(fromStart("room"), { onState: states.onState });
    await nextEvent(sub, "channel_state");
    asleep(20_000);
    await awake(30_000);
    expect(states.names).toEqual(["connecting", "live"]);
    sub.close();
  });

  for (const event of ["online", "visibilitychange"]) {
    it(`shortens a backoff on ${event}, but not the server's retryAfter`, async () => {
      const server = new Fake();
      server.down = true;
      const states = new States();
      const client = newClient(server, { backoff: { base: 200, max: 1e6 }, random: () => 0.999 });
      const sub = client.subscribe(fromStart("room"), { onState: states.onState });
      for (let i = 0; i < 200 && (states.waits.at(-1)?.wait ?? 0) < 100_000; i++) {
        await awake(1_000);
      }
      expect(sub.state).toBe("waiting");
      const streams = states.names.filter((s) => s === "connecting").length;
      server.down = false;
      const retryAfter = durationFromMs(60_000);
      const error = failure(Code.ResourceExhausted, ErrorReason.RATE_LIMITED, { retryAfter });
      server.faults(1, "Subscribe", { error });
      page.dispatchEvent(new Event("visibilitychange")); // A page that becomes hidden has no effect.
      await awake(300);
      expect(sub.state).toBe("waiting");
      page.visibilityState = "visible";
      page.dispatchEvent(new Event(event));
      await awake(300);
      expect(states.names.filter((s) => s === "connecting").length).toBe(streams + 1);
      expect(states.all.at(-1)).toMatchObject({ state: "waiting", error: { reason: "RATE_LIMITED" } });
      page.dispatchEvent(new Event(event));
      await awake(59_000);
      expect(sub.state).toBe("waiting");
      await awake(1_500);
      expect(sub.state).toBe("live");
      sub.close();
      await sub.done;
      expect(page.listeners).toBe(0);
    });
  }

  it("resolves waits whose time passed during the sleep", async () => {
    const waiting = sleep({ retryAfter: 5_000, backoff: 5_000 }, new AbortController().signal, () => 0);
    let over = false;
    waiting.then(() => {
      over = true;
    });
    await awake(1_000);
    expect(over).toBe(false);
    asleep(20_000);
    await awake(1_000);
    expect(over).toBe(true);
    expect(page.listeners).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });

  it("ends a wait when its signal is aborted", async () => {
    const controller = new AbortController();
    const waiting = sleep({ retryAfter: 0, backoff: 5_000 }, controller.signal, () => 0);
    controller.abort("why");
    await expect(waiting).rejects.toBe("why");
    expect(vi.getTimerCount()).toBe(0);
  });
});
