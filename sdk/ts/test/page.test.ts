import type * as pb from "@parleyhq/api/parley/v1/presence_pb.js";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Fake } from "./fake.js";
import { newClient } from "./helper.js";
import { connect, connects } from "./presencehelper.js";

/** Page is a fake of the browser's document. */
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

  show(state: "visible" | "hidden"): void {
    this.visibilityState = state;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

let page: Page;

const awake = (ms = 10) => vi.advanceTimersByTimeAsync(ms);
const sent = (server: Fake) => server.of<pb.SetBackgroundRequest>("SetBackground").map((r) => r.background);

// Timers and the document belong to the process, so these tests cannot run concurrently.
describe.sequential("a presence in a page", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
    page = new Page();
    vi.stubGlobal("document", page);
  });

  afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  it("is in the background while the page is hidden", async () => {
    const server = new Fake();
    const presence = connect(newClient(server));
    await awake();
    expect(connects(server)).toMatchObject([{ background: true }]);
    page.show("visible");
    await awake();
    page.show("hidden");
    await awake();
    expect(sent(server)).toEqual([false, true]);
    presence.close();
    await presence.done;
    page.show("visible");
    await awake();
    expect(sent(server)).toEqual([false, true]);
    expect(page.listeners).toBe(0);
  });

  it("does not follow the page if the program sets the background", async () => {
    const server = new Fake();
    const client = newClient(server);
    const fixed = connect(client, { background: false });
    await awake();
    page.show("visible");
    page.show("hidden");
    await awake();
    expect(connects(server)).toMatchObject([{ background: false }]);
    expect(sent(server)).toEqual([]);
    fixed.close();
    await awake();
    const presence = connect(client);
    await awake();
    presence.setBackground(false);
    await awake();
    page.show("visible");
    page.show("hidden");
    await awake();
    expect(sent(server)).toEqual([false]);
    presence.close();
    await awake();
    expect(page.listeners).toBe(0);
  });

  it("waits at most 2 s for the server when it is closed", async () => {
    const server = new Fake();
    server.faults(1, "Disconnect", { hang: true });
    const presence = connect(newClient(server));
    await awake();
    expect(presence.state).toBe("live");
    let done = false;
    presence.done.then(() => {
      done = true;
    });
    presence.close();
    await awake(1_900);
    expect([done, server.of("Disconnect").length]).toEqual([false, 1]);
    await awake(200);
    expect(done).toBe(true);
    expect(server.streams.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });
});
