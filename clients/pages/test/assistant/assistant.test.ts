import { describe, expect, test, vi } from "vitest";
import { Assistant, titleOf } from "../../src/assistant/model/assistant";
import type { Conversation } from "../../src/assistant/model/conversation";
import { FakeClient, FakeEnvironment, parleyError } from "./fake";

function setup(client = new FakeClient(), environment = new FakeEnvironment()) {
  const assistant = new Assistant(client, "ann", environment);
  return { client, environment, assistant };
}

/** started returns an assistant whose stream is live. */
async function started(client = new FakeClient(), environment = new FakeEnvironment()) {
  const parts = setup(client, environment);
  void parts.assistant.start();
  client.onState({ state: "connecting" });
  client.onState({ state: "live" });
  await settled();
  return parts;
}

const settled = () => new Promise((resolve) => setTimeout(resolve));

/** shown returns the texts of the open conversation. */
const shown = (assistant: Assistant) => view(assistant).entries.map((e) => e.text);
const view = (assistant: Assistant) => (assistant.open.value as Conversation).view.value;
const of = (client: FakeClient, call: string) => client.calls.filter((c) => c.startsWith(call));

describe("a conversation", () => {
  test("is loaded once the stream has its state, and then follows it", async () => {
    const client = new FakeClient();
    client.post("s", "user", "hello");
    const { assistant } = setup(client);
    void assistant.start();
    assistant.show("s");
    await settled();
    expect(of(client, "add")).toEqual([]);
    client.onState({ state: "live" });
    await settled();
    expect(of(client, "add")).toEqual(["add s"]);
    expect(shown(assistant)).toEqual(["hello"]);
    expect(view(assistant)).toMatchObject({ loaded: true, atStart: true, answer: null });
    expect(view(assistant).unanswered?.content).toBe("hello");
    const open = client.post("s", "assistant", "", { status: "open" });
    await settled();
    expect(view(assistant)).toMatchObject({ answer: { msgId: open.msgId }, unanswered: null });
    expect(assistant.sessions.get("s")?.answering).toBe(true);
    client.delta(open, 0, "hé");
    client.delta(open, 3, "llo");
    await settled();
    expect(shown(assistant)).toEqual(["hello", "héllo"]);
    client.delta(open, 3, "!");
    await settled();
    expect(shown(assistant)).toEqual(["hello", "hé!"]);
    client.change(open, "closed", { content: "héllo there", status: "sent" });
    await settled();
    expect(shown(assistant)).toEqual(["hello", "héllo there"]);
    expect(view(assistant).answer).toBeNull();
    expect(assistant.sessions.get("s")?.answering).toBe(false);
  });

  test("keeps the newer of two copies, and shows no deleted messages", async () => {
    const client = new FakeClient();
    const first = client.post("s", "user", "first");
    const { assistant } = await started(client);
    let release = () => {};
    client.held = new Promise((resolve) => {
      release = resolve;
    });
    client.followed.add("s");
    assistant.show("s");
    client.change(first, "edited", { content: "second", status: "edited" });
    await settled();
    client.logs.set("s", [first]); // The page is older than the event.
    release();
    client.held = undefined;
    await settled();
    expect(shown(assistant)).toEqual(["second"]);
    client.change({ ...first, changedSeq: 9 }, "recalled", { content: "", status: "recalled" });
    await settled();
    expect(shown(assistant)).toEqual([]);
  });

  test("loads older pages, and everything again after a gap", async () => {
    const client = new FakeClient();
    for (let i = 1; i <= 150; i++) client.post("s", "assistant", `text ${i}`);
    const { assistant } = await started(client);
    assistant.show("s");
    await settled();
    expect([shown(assistant).length, view(assistant).atStart]).toEqual([100, false]);
    await assistant.open.value?.loadOlder();
    expect([shown(assistant).length, view(assistant).atStart]).toEqual([150, true]);
    expect(shown(assistant)[0]).toBe("text 1");
    await assistant.open.value?.loadOlder();
    expect(of(client, "messages")).toEqual(["messages s ", "messages s 51"]);
    client.logs.set("s", (client.logs.get("s") ?? []).slice(0, 3));
    const gap = { afterSeq: 0, toSeq: 9, epoch: "f", reason: "EPOCH_CHANGED" as const };
    client.event({ kind: "gap", channelId: "~s", seq: 9, epoch: "f", gap });
    await settled();
    expect(shown(assistant)).toEqual(["text 1", "text 2", "text 3"]);
  });

  test("that does not exist, or is deleted, says so", async () => {
    const { assistant, client } = await started();
    assistant.show("none");
    await settled();
    expect(view(assistant).error).toContain("no such conversation");
    client.post("s", "user", "hello");
    assistant.show("s");
    await settled();
    client.event({ kind: "lost", channelId: "~s", seq: 0, epoch: "e", reason: "DELETED" });
    await settled();
    expect(view(assistant).error).toBe("This conversation was deleted.");
    expect(assistant.sessions.get("s")).toBeUndefined();
  });

  test("is given up when eight others were opened since", async () => {
    const client = new FakeClient();
    for (let i = 0; i < 10; i++) client.post(`s${i}`, "user", "hello");
    const { assistant } = await started(client);
    for (let i = 0; i < 10; i++) {
      assistant.show(`s${i}`);
      await settled();
    }
    expect([...client.followed].sort()).toEqual(["s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"]);
    assistant.show("s0");
    await settled();
    expect(shown(assistant)).toEqual(["hello"]);
  });
});

describe("a prompt", () => {
  test("begins a session, is pending until the server has it, and is followed then", async () => {
    const { assistant, client, environment } = await started();
    let release = () => {};
    client.held = new Promise((resolve) => {
      release = resolve;
    });
    const id = assistant.ask("What is it?\nTell me.");
    expect(id).toBe("id-1");
    expect(view(assistant).pending).toMatchObject({ content: "What is it?\nTell me.", refused: "" });
    expect(assistant.ask("another")).toBeNull();
    expect(assistant.ask(" \n")).toBeNull();
    expect([...environment.kept.keys()]).toEqual(["parley.prompt/ann/id-1"]);
    release();
    client.held = undefined;
    await settled();
    expect(view(assistant).pending).toBeNull();
    expect(environment.kept.size).toBe(0);
    expect(shown(assistant)).toEqual(["What is it?\nTell me."]);
    expect(of(client, "add")).toEqual(["add id-1"]);
    expect(assistant.sessions.list.value).toMatchObject([{ id: "id-1", title: "What is it?" }]);
    expect(client.titles.get("id-1")).toBe("What is it?");
    expect(environment.changes).toBe(1);
    assistant.ask("More");
    await settled();
    expect(shown(assistant)).toEqual(["What is it?\nTell me.", "More"]);
    expect(environment.changes).toBe(1);
  });

  test("that was not sent before a reload is sent after it, once", async () => {
    const environment = new FakeEnvironment();
    const first = await started(new FakeClient(), environment);
    first.client.held = new Promise(() => {});
    const id = first.assistant.ask("hello") ?? "";
    first.assistant.close();
    expect(first.client.closed).toBe(true);
    const client = new FakeClient();
    client.post(id, "user", "hello", { clientMsgId: "id-2" }); // It had arrived.
    const { assistant } = await started(client, environment);
    assistant.show(id);
    expect(view(assistant).pending?.content).toBe("hello");
    await settled();
    expect(of(client, "append")).toEqual([`append ${id} hello`]);
    expect([shown(assistant), view(assistant).pending]).toEqual([["hello"], null]);
    expect(environment.kept.size).toBe(0);
  });

  test("that is refused can be sent again, or discarded", async () => {
    const { assistant, client } = await started();
    client.fault = (call) => (call.startsWith("append") ? parleyError("RATE_LIMITED") : undefined);
    assistant.ask("hello");
    await settled();
    expect(view(assistant).pending?.refused).toContain("Too many requests");
    assistant.retry();
    expect(view(assistant).pending?.refused).toBe("");
    await settled();
    expect(of(client, "append").length).toBe(2);
    expect(assistant.discard()).toBe("hello");
    expect(view(assistant).pending).toBeNull();
    client.fault = () => undefined;
    assistant.ask("again");
    await settled();
    expect(shown(assistant)).toEqual(["again"]);
  });

  test("is asked again after the messages behind it were deleted", async () => {
    const client = new FakeClient();
    const prompt = client.post("s", "user", "What?");
    const one = client.post("s", "assistant", "This.");
    const two = client.post("s", "user", "Really?");
    const { assistant } = await started(client);
    assistant.show("s");
    await settled();
    expect(await assistant.askAgain(prompt, "Why?")).toBe(true);
    await settled();
    expect(client.calls.slice(-3)).toEqual([
      `recall s ${one.msgId}`,
      `recall s ${two.msgId}`,
      `edit s ${prompt.msgId} Why?`,
    ]);
    expect(shown(assistant)).toEqual(["Why?"]);
    client.fault = (call) => (call.startsWith("edit") ? parleyError("NOT_SENDER") : undefined);
    expect(await assistant.askAgain(prompt, "How?")).toBe(false);
    expect(assistant.notice.value).toContain("your own messages");
  });
});

describe("an answer", () => {
  test("is stopped once, and it does not matter if it has ended meanwhile", async () => {
    const client = new FakeClient();
    client.post("s", "user", "hello");
    const open = client.post("s", "assistant", "", { status: "open" });
    const { assistant } = await started(client);
    await assistant.stop();
    assistant.show("s");
    await settled();
    client.fault = (call) => (call.startsWith("cancel") ? parleyError("MESSAGE_CLOSED") : undefined);
    const stopping = assistant.stop();
    expect(assistant.stopping.value.has(open.msgId)).toBe(true);
    void assistant.stop();
    await stopping;
    expect(of(client, "cancel")).toEqual([`cancel s ${open.msgId}`]);
    expect(assistant.notice.value).toBe("");
    expect(assistant.stopping.value.size).toBe(0);
    client.fault = (call) => (call.startsWith("cancel") ? parleyError("STORE_UNAVAILABLE") : undefined);
    await assistant.stop();
    expect(assistant.notice.value).toContain("storage");
  });

  test("is read once it is complete and seen", async () => {
    const client = new FakeClient();
    client.post("s", "user", "hello");
    const { assistant } = await started(client);
    assistant.show("s");
    assistant.watch(true);
    await settled();
    expect(of(client, "markRead")).toEqual(["markRead s 1"]);
    const open = client.post("s", "assistant", "", { status: "open" });
    await settled();
    expect(of(client, "markRead").length).toBe(1);
    client.change(open, "closed", { content: "hi", status: "sent" });
    await settled();
    expect(of(client, "markRead")).toEqual(["markRead s 1", "markRead s 2"]);
    assistant.watch(false);
    client.post("s", "assistant", "more");
    await settled();
    expect(of(client, "markRead").length).toBe(2);
    expect(assistant.sessions.get("s")?.unread).toBe(1);
    assistant.watch(true);
    expect(assistant.sessions.get("s")?.unread).toBe(0);
  });
});

describe("the list", () => {
  test("is what the server has, and what this page has just changed", async () => {
    const client = new FakeClient();
    const environment = new FakeEnvironment();
    client.post("a", "user", "hello");
    client.post("b", "user", "hello");
    client.titles.set("a", "Title a");
    const { assistant } = await started(client, environment);
    const titles = () => assistant.sessions.list.value.map((s) => `${s.id} ${s.title}`);
    expect(titles()).toEqual(["b ", "a Title a"]);
    await assistant.rename("a", "Other");
    expect(environment.changes).toBe(1);
    await assistant.refresh(); // A list that is older than the change.
    expect(titles()).toEqual(["b ", "a Other"]);
    environment.time += 5_000;
    client.titles.set("b", "Title b");
    await assistant.refresh();
    expect(titles()).toEqual(["b Title b", "a Title a"]);
    client.logs.delete("b");
    await assistant.refresh();
    expect(titles()).toEqual(["a Title a"]);
    await assistant.remove("a");
    await assistant.refresh(); // The list still has it.
    expect(titles()).toEqual([]);
    client.fault = () => parleyError("NOT_MEMBER");
    await expect(assistant.rename("a", "x")).rejects.toThrow();
  });

  test("is loaded again every 30 s while the stream is live", async () => {
    const { assistant, client, environment } = await started();
    expect(environment.timers.length).toBe(1);
    client.post("new", "user", "hello");
    environment.timers[0]?.();
    await settled();
    expect(assistant.sessions.get("new")).toBeDefined();
    client.onState({ state: "waiting", wait: 5 });
    environment.timers[1]?.();
    await settled();
    expect(of(client, "sessions").length).toBe(2);
    expect(assistant.connection.value).toMatchObject({ state: "waiting" });
  });

  test("ends the connection if the token is refused", async () => {
    const client = new FakeClient();
    client.fault = () => parleyError("TOKEN_EXPIRED");
    const { assistant } = await started(client);
    expect(assistant.connection.value).toMatchObject({ state: "ended", end: "token" });
  });

  test("says why it cannot be loaded, and the stream why it ended", async () => {
    const client = new FakeClient();
    client.fault = (call) => (call === "sessions" ? parleyError("STORE_UNAVAILABLE") : undefined);
    const { assistant } = await started(client);
    expect(assistant.notice.value).toContain("storage");
    client.end(parleyError("CAPABILITY_MISSING"));
    await settled();
    expect(assistant.connection.value).toMatchObject({ state: "ended", end: "capability" });
  });
});

test("a title is the first line of a prompt, shortened between characters", () => {
  expect(titleOf("\n  What?  \nmore")).toBe("What?");
  const long = titleOf("😀".repeat(100));
  expect([...long].length).toBe(60);
  expect(Buffer.byteLength(long)).toBeLessThanOrEqual(256);
  expect(long.endsWith("😀…")).toBe(true);
});

test("without a storage a prompt is sent all the same", async () => {
  const environment = new FakeEnvironment();
  vi.spyOn(environment.storage, "setItem").mockImplementation(() => {
    throw new Error("full");
  });
  const { assistant } = await started(new FakeClient(), environment);
  assistant.ask("hello");
  await settled();
  expect(shown(assistant)).toEqual(["hello"]);
});
