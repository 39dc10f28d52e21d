import { createConnectRouter } from "@connectrpc/connect";
import { createFetchHandler } from "@connectrpc/connect/protocol";
import { AdminService } from "@parleyhq/api/parley/v1/admin_pb.js";
import * as pb from "@parleyhq/api/parley/v1/admin_queue_pb.js";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { connect } from "../../src/queues/client";
import type { QueueClient } from "../../src/queues/model/types";

/** The requests that the server received, in order. */
let requests: unknown[] = [];

function keep<Req, Res>(answer: Res): (request: Req) => Res {
  return (request) => {
    requests.push(request);
    return answer;
  };
}

const group = { group: "workers", unread: 3n, pending: 2n, oldestAge: { seconds: 1n, nanos: 500_000_000 } };

const handlers = new Map(
  createConnectRouter()
    .service(AdminService, {
      pauseTopic: keep({}),
      resumeTopic: keep({}),
      createGroup: keep({}),
      replayDeadLetters: keep({ replayed: 5n, more: true }),
      purgeDeadLetters: keep({ purged: 7n }),
      getTopicStats: keep({
        total: { length: 9n, deadLetters: 1n, groups: [group] },
        partitions: [
          { partition: 0, length: 4n },
          { partition: 1, length: 5n },
        ],
      }),
      listPartitions: keep({ partitions: [{ partition: 1, streamId: "s1", consumer: "c", nodeId: "n", epoch: 4n }] }),
    })
    .handlers.map((handler) => [handler.requestPath, createFetchHandler(handler)]),
);

describe("the client of AdminService", () => {
  const { signal } = new AbortController();
  let client: QueueClient;

  beforeEach(() => {
    requests = [];
    vi.stubGlobal("fetch", async (input: RequestInfo | URL, init?: RequestInit) => {
      const request = new Request(input, init);
      expect(request.headers.get("authorization")).toBe("Bearer secret");
      return await handlers.get(new URL(request.url).pathname)?.(request);
    });
    client = connect({ address: "http://server", token: "secret" });
  });

  afterEach(() => {
    vi.unstubAllGlobals();
  });

  test("selects dead letters by ids, by group, or all", async () => {
    expect(await client.replay("jobs", { kind: "ids", ids: ["0-1-0"] }, signal)).toEqual({ replayed: 5, more: true });
    await client.replay("jobs", { kind: "group", group: "workers" }, signal);
    await client.replay("jobs", { kind: "all" }, signal);
    expect(await client.purge("jobs", { kind: "ids", ids: ["0-1-0", "0-2-0"] }, "jobs", signal)).toBe(7);
    await client.purge("jobs", { kind: "group", group: "workers" }, "jobs", signal);
    await client.purge("jobs", { kind: "all" }, "jobs", signal);
    const selected = requests.map((r) => (r as pb.PurgeDeadLettersRequest).selection?.selection);
    expect(selected).toMatchObject([
      { case: "ids", value: { deadLetterIds: ["0-1-0"] } },
      { case: "group", value: "workers" },
      { case: "all" },
      { case: "ids", value: { deadLetterIds: ["0-1-0", "0-2-0"] } },
      { case: "group", value: "workers" },
      { case: "all" },
    ]);
    expect(requests.slice(3)).toMatchObject(Array(3).fill({ topic: "jobs", confirm: "jobs" }));
  });

  test("sends the operations to pause and resume", async () => {
    const { PRODUCE, CONSUME } = pb.TopicOperation;
    await client.pause("jobs", ["produce"], signal);
    await client.pause("jobs", ["consume"], signal);
    await client.pause("jobs", ["produce", "consume"], signal);
    await client.resume("jobs", ["consume"], signal);
    expect(requests).toMatchObject([
      { topic: "jobs", operations: [PRODUCE] },
      { topic: "jobs", operations: [CONSUME] },
      { topic: "jobs", operations: [PRODUCE, CONSUME] },
      { topic: "jobs", operations: [CONSUME] },
    ]);
  });

  test("creates a group at the beginning or at the end", async () => {
    await client.createGroup("jobs", "a", false, signal);
    await client.createGroup("jobs", "b", true, signal);
    const starts = requests.map((r) => (r as pb.CreateGroupRequest).start?.start);
    expect(starts).toEqual([
      { case: "position", value: pb.StartPosition.BEGINNING },
      { case: "position", value: pb.StartPosition.END },
    ]);
  });

  test("reads the counts of a topic and of its partitions", async () => {
    const { total, partitions } = await client.stats("jobs", signal);
    expect(total).toMatchObject({ length: 9, deadLetters: 1, groups: [{ group: "workers", unread: 3, pending: 2 }] });
    expect(total.groups[0]?.oldestAge).toBe(1_500);
    expect(partitions.map((p) => [p.partition, p.length])).toEqual([
      [0, 4],
      [1, 5],
    ]);
    const [owner] = await client.owners("jobs", "workers", signal);
    expect(owner).toMatchObject({ partition: 1, streamId: "s1", consumer: "c", nodeId: "n", epoch: 4n });
  });
});
