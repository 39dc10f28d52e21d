import type { DescService } from "@bufbuild/protobuf";
import { createConnectRouter, type ServiceImpl } from "@connectrpc/connect";
import { createFetchHandler } from "@connectrpc/connect/protocol";
import { AdminService } from "@parleyhq/api/parley/v1/admin_pb.js";
import * as pb from "@parleyhq/api/parley/v1/admin_queue_pb.js";
import { QueueService } from "@parleyhq/api/parley/v1/queue_pb.js";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { connect } from "../../src/queues/client";
import type { GroupSettings, QueueClient, TopicSettings } from "../../src/queues/model/types";

/** The requests that the server received, in order. */
let requests: unknown[] = [];

function keep<Req, Res>(...answers: Res[]): (request: Req) => Res {
  let next = 0;
  return (request) => {
    requests.push(request);
    return answers[Math.min(next++, answers.length - 1)] as Res;
  };
}

const group = {
  group: "workers",
  waiting: 3n,
  running: 2n,
  sessions: 1,
  oldestAge: { seconds: 1n, nanos: 500_000_000 },
};

function handlers<S extends DescService>(service: S, made: Partial<ServiceImpl<S>>) {
  const { handlers } = createConnectRouter().service(service, made);
  return handlers.map((handler) => [handler.requestPath, createFetchHandler(handler)] as const);
}

function answers() {
  const admin = handlers(AdminService, {
    setTopicPaused: keep({}),
    setGroupPaused: keep({}),
    createGroup: keep({}),
    updateTopic: keep({}),
    updateGroup: keep({}),
    seekGroup: keep({}),
    trimTopic: keep({ removed: 5n, lost: 2n }),
    retryJobs: keep({ retried: 2n }),
    replayDeadLetters: keep({ replayed: 5n, more: true }),
    purgeDeadLetters: keep({ purged: 7n }),
    getTopicStats: keep({
      total: { length: 9n, scheduled: 4n, deadLetters: 1n, groups: [group] },
      partitions: [
        { partition: 0, length: 4n },
        { partition: 1, length: 5n },
      ],
      history: [{ time: { seconds: 5n }, produced: 6n, groups: [{ group: "workers", acked: 7n }] }],
    }),
    listPartitions: keep({ partitions: [{ partition: 1, consumer: "c", nodeId: "n", epoch: 4n }] }),
    listGroups: keep({
      groups: [{ name: "workers", mode: pb.GroupMode.EXCLUSIVE, order: pb.DeliveryOrder.STRICT, paused: true }],
    }),
    // A page can be empty although more follow.
    listJobs: keep<pb.ListJobsRequest, object>(
      { nextPageToken: "2" },
      {
        jobs: [{ messageId: "m", groups: [{ group: "workers", state: pb.JobState.RETRYING, attempts: 3, code: "C" }] }],
        nextPageToken: "3",
      },
    ),
    listConsumers: keep({
      consumers: [{ consumer: "c", state: pb.SessionState.DETACHED, inFlight: 2, oldestMessageId: "m" }],
      missingNodes: ["n2"],
    }),
    listDeadLetters: keep({ deadLetters: [{ deadLetterId: "0-1-0", code: "C" }] }),
  });
  const queue = handlers(QueueService, {
    cancelMessages: keep({ results: [{}, { error: { message: "it runs" } }, { error: { message: "it runs" } }] }),
    rescheduleMessages: keep({ results: [{ result: { case: "dueTime" as const, value: {} } }] }),
    produce: keep<unknown, object>(
      { results: [{ result: { case: "produced" as const, value: { messageId: "m" } } }] },
      { results: [{ result: { case: "error" as const, value: { message: "the topic is paused" } } }] },
    ),
  });
  return new Map([...admin, ...queue]);
}

describe("the client of the queue services", () => {
  const { signal } = new AbortController();
  let client: QueueClient;

  beforeEach(() => {
    requests = [];
    const all = answers();
    vi.stubGlobal("fetch", async (input: RequestInfo | URL, init?: RequestInit) => {
      const request = new Request(input, init);
      expect(request.headers.get("authorization")).toBe("Bearer secret");
      return await all.get(new URL(request.url).pathname)?.(request);
    });
    client = connect({ address: "http://server", token: "secret" });
  });

  afterEach(() => {
    vi.unstubAllGlobals();
  });

  test("selects dead letters by ids, by group, or all", async () => {
    const replayed = await client.replay("jobs", { kind: "ids", ids: ["0-1-0"] }, "", signal);
    expect(replayed).toEqual({ replayed: 5, more: true });
    await client.replay("jobs", { kind: "group", group: "workers" }, "other", signal);
    await client.replay("jobs", { kind: "all" }, "", signal);
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
    expect(requests[1]).toMatchObject({ topic: "jobs", toTopic: "other" });
    expect(requests.slice(3)).toMatchObject(Array(3).fill({ topic: "jobs", confirm: "jobs" }));
  });

  test("pauses and resumes a topic and a group", async () => {
    await client.pauseTopic("jobs", true, signal);
    await client.pauseGroup("jobs", "workers", false, signal);
    expect(requests).toMatchObject([
      { topic: "jobs", paused: true },
      { topic: "jobs", group: "workers", paused: false },
    ]);
  });

  test("creates a group, and moves one to an end or a time", async () => {
    const made = { name: "a", exclusive: true, order: "strict" as const, maxAttempts: 3, fromEnd: true };
    await client.createGroup("jobs", made, signal);
    await client.seekGroup("jobs", "a", "beginning", signal);
    await client.seekGroup("jobs", "a", new Date(5_000), signal);
    expect(requests).toMatchObject([
      {
        group: {
          name: "a",
          mode: pb.GroupMode.EXCLUSIVE,
          order: pb.DeliveryOrder.STRICT,
          retry: { maxAttempts: 3 },
          start: { start: { case: "position", value: pb.StartPosition.END } },
        },
      },
      { group: "a", start: { start: { case: "position", value: pb.StartPosition.BEGINNING } } },
      { group: "a", start: { start: { case: "time", value: { seconds: 5n } } } },
    ]);
  });

  test("an update names the changed settings, and has all that the server changes together", async () => {
    const topic: TopicSettings = {
      partitions: 8,
      maxAge: 60_000,
      keptMessages: 5,
      deadLetterMaxAge: 0,
      maxDeadLetters: 7,
      maxMessages: 9,
      dropOldest: true,
      idempotencyWindow: 1_000,
    };
    await client.updateTopic("jobs", topic, ["maxAge", "keptMessages", "maxMessages"], signal);
    const settings: GroupSettings = {
      order: "none",
      maxAttempts: 4,
      minBackoff: 1,
      maxBackoff: 2,
      ackTimeout: 3_000,
      handlerTimeout: 4,
      maxRunTime: 5_000,
      resumeGrace: 6_000,
      nonRetryable: ["C"],
    };
    await client.updateGroup("jobs", "workers", settings, ["maxAttempts", "order"], signal);
    expect(requests).toMatchObject([
      {
        topic: { name: "jobs", retention: { maxMessages: 5n, maxDeadLetters: 7n, maxAge: { seconds: 60n } } },
        updateMask: { paths: ["retention", "max_messages_per_partition"] },
      },
      {
        topic: "jobs",
        group: {
          name: "workers",
          retry: { maxAttempts: 4, nonRetryableCodes: ["C"], maxBackoff: { nanos: 2_000_000 } },
        },
        updateMask: { paths: ["retry", "order"] },
      },
    ]);
  });

  test("trims a topic to a number of messages", async () => {
    expect(await client.trim("jobs", 100, true, signal)).toEqual({ removed: 5, lost: 2 });
    expect(requests).toMatchObject([{ topic: "jobs", keep: { case: "maxMessages", value: 100n }, force: true }]);
  });

  test("reads counts, history, groups and leases", async () => {
    const { total, partitions, history } = await client.stats("jobs", true, signal);
    expect(total).toMatchObject({ length: 9, scheduled: 4, deadLetters: 1, groups: [{ waiting: 3, running: 2 }] });
    expect(total.groups[0]).toMatchObject({ oldestAge: 1_500, sessions: 1 });
    expect(partitions.map((p) => [p.partition, p.length])).toEqual([
      [0, 4],
      [1, 5],
    ]);
    expect(history).toMatchObject([{ at: 5_000, produced: 6, groups: [{ group: "workers", acked: 7 }] }]);
    const [lease] = await client.leases("jobs", "workers", signal);
    expect(lease).toEqual({ partition: 1, consumer: "c", nodeId: "n", epoch: 4n });
    const [made] = await client.groups("jobs", signal);
    expect(made).toMatchObject({ name: "workers", exclusive: true, order: "strict", paused: true });
  });

  test("reads jobs, skips empty pages, and reads consumers and dead letters", async () => {
    const query = { topic: "jobs", group: "workers", state: "retrying" as const, key: "k" };
    const page = await client.jobs(query, "1", 50, signal);
    expect(page).toMatchObject({
      items: [{ messageId: "m", groups: [{ state: "retrying", attempts: 3 }] }],
      next: "3",
    });
    expect(requests).toMatchObject([
      { state: pb.JobState.RETRYING, key: "k", pageSize: 50, pageToken: "1" },
      { pageToken: "2" },
    ]);
    const { items, missingNodes } = await client.consumers("jobs", "workers", "", 10, signal);
    expect(items).toMatchObject([{ consumer: "c", state: "detached", inFlight: 2, oldestMessageId: "m" }]);
    expect(missingNodes).toEqual(["n2"]);
    const letters = await client.letters({ topic: "jobs", group: "", code: "C" }, "", 25, signal);
    expect(letters).toMatchObject({ items: [{ id: "0-1-0", code: "C" }], next: "" });
    expect(requests.at(-1)).toMatchObject({ code: "C", full: true, pageSize: 25 });
  });

  test("retries, cancels, reschedules and produces messages", async () => {
    expect(await client.retry("jobs", "workers", ["a", "b"], signal)).toBe(2);
    const cancelled = await client.cancel("jobs", ["a", "b", "c"], signal);
    expect(cancelled).toEqual({ done: 1, failed: 2, problems: ["it runs"] });
    expect(await client.reschedule("jobs", ["a"], 90_000, signal)).toMatchObject({ done: 1, failed: 0 });
    expect(requests.at(-1)).toMatchObject({ due: { case: "delay", value: { seconds: 90n } } });
    expect(await client.produce("jobs", { key: "k", payload: "hi", delay: 0 }, signal)).toBe("m");
    const second = client.produce("jobs", { key: "", payload: "", delay: 0 }, signal);
    await expect(second).rejects.toThrow("the topic is paused");
  });
});
