import { createConnectRouter } from "@connectrpc/connect";
import { createFetchHandler } from "@connectrpc/connect/protocol";
import { MessageService } from "@parleyhq/api/parley/v1/message_pb.js";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { connect } from "../../src/chat/client";

describe("the client of MessageService", () => {
  beforeEach(() => {
    vi.stubGlobal("addEventListener", () => {});
    vi.stubGlobal("document", new EventTarget());
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date", "performance"] });
  });

  afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  test("sends messages written offline, however long that lasted", async () => {
    const router = createConnectRouter().service(MessageService, {
      sendMessage: ({ clientMsgId }) => ({ seq: 1n, clientMsgId }),
    });
    const [handler] = router.handlers.filter((one) => one.requestPath.endsWith("/SendMessage"));
    const serve = handler && createFetchHandler(handler);
    let online = false;
    vi.stubGlobal("fetch", async (input: RequestInfo | URL, init?: RequestInit) => {
      if (!online) throw new TypeError("Failed to fetch");
      return await serve?.(new Request(input, init));
    });
    const client = connect({ address: "http://server", token: "token" });
    const { signal } = new AbortController();
    const sending = client.send("room", "hello", { clientMsgId: "mine", type: "text", signal });
    let settled = false;
    const done = () => {
      settled = true;
    };
    sending.then(done, done);
    await vi.advanceTimersByTimeAsync(3_600_000);
    expect(settled).toBe(false);
    online = true;
    await vi.advanceTimersByTimeAsync(15_000);
    expect(await sending).toMatchObject({ seq: 1, clientMsgId: "mine" });
    client.close();
  });
});
