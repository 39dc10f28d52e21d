import type { MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs, timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import { AdminService } from "@parleyhq/api/parley/v1/admin_pb.js";
import * as pb from "@parleyhq/api/parley/v1/admin_queue_pb.js";
import type { ItemError } from "@parleyhq/api/parley/v1/error_pb.js";
import { QueueService } from "@parleyhq/api/parley/v1/queue_pb.js";
import { type Server, serviceClient } from "../connection/service";
import { states, toConsumer, toGroup, toJob, toLease, toLetter, toOutcome, toStats, toTopic } from "./convert";
import type { GroupSettings, NewGroup, Order, Page, QueueClient, Selection, Topic, TopicSettings } from "./model/types";

// The maximum page size. The client loads pages until there are no more.
const topicsPerPage = 1_000;

// A page of a list can be empty although more follow. The client asks for at most this number of
// pages to find an item.
const pagesMost = 5;

/** connect returns the model's client: the queue services of one server, with one token. */
export function connect(server: Server): QueueClient {
  const admin = serviceClient(AdminService, server);
  const queue = serviceClient(QueueService, server);
  return { ...reads(admin), ...changes(admin), ...jobChanges(admin, queue) };
}

type Admin = Client<typeof AdminService>;

type Reads = "topics" | "stats" | "groups" | "leases" | "jobs" | "job" | "consumers" | "letters";

type JobChanges = "retry" | "cancel" | "reschedule" | "produce";

function reads(admin: Admin): Pick<QueueClient, Reads> {
  return {
    topics: async (signal) => {
      const topics: Topic[] = [];
      for (let pageToken = ""; ; ) {
        const page = await admin.listTopics({ pageSize: topicsPerPage, pageToken }, { signal });
        topics.push(...page.topics.map(toTopic));
        pageToken = page.nextPageToken;
        if (pageToken === "") return topics;
      }
    },
    stats: async (topic, history, signal) => toStats(await admin.getTopicStats({ topic, history }, { signal })),
    groups: async (topic, signal) => (await admin.listGroups({ topic }, { signal })).groups.map(toGroup),
    leases: async (topic, group, signal) => {
      const { partitions } = await admin.listPartitions({ topic, group }, { signal });
      return partitions.map(toLease);
    },
    jobs: async ({ topic, group, state, key }, page, pageSize, signal) =>
      filled(page, async (pageToken) => {
        const query = { topic, group, key, state: state === "" ? 0 : states[state], pageSize, pageToken };
        const { jobs, nextPageToken } = await admin.listJobs(query, { signal });
        return { items: jobs.map(toJob), next: nextPageToken };
      }),
    job: async (topic, messageId, signal) => toJob((await admin.getJob({ topic, messageId }, { signal })).job),
    consumers: async (topic, group, pageToken, pageSize, signal) => {
      const page = await admin.listConsumers({ topic, group, pageToken, pageSize }, { signal });
      const { consumers, nextPageToken: next, missingNodes } = page;
      return { items: consumers.map(toConsumer), next, missingNodes };
    },
    letters: async ({ topic, group, code }, page, pageSize, signal) =>
      filled(page, async (pageToken) => {
        const query = { topic, group, code, pageSize, pageToken, full: true };
        const { deadLetters, nextPageToken } = await admin.listDeadLetters(query, { signal });
        return { items: deadLetters.map(toLetter), next: nextPageToken };
      }),
  };
}

function changes(admin: Admin): Omit<QueueClient, Reads | JobChanges> {
  return {
    replay: async (topic, which, toTopic, signal) => {
      const request = { topic, selection: toSelection(which), toTopic };
      const done = await admin.replayDeadLetters(request, { signal });
      return { replayed: Number(done.replayed), more: done.more };
    },
    purge: async (topic, which, confirm, signal) => {
      const request = { topic, selection: toSelection(which), confirm };
      return Number((await admin.purgeDeadLetters(request, { signal })).purged);
    },
    pauseTopic: async (topic, paused, signal) => {
      await admin.setTopicPaused({ topic, paused }, { signal });
    },
    pauseGroup: async (topic, group, paused, signal) => {
      await admin.setGroupPaused({ topic, group, paused }, { signal });
    },
    createTopic: async (topic, signal) => {
      await admin.createTopic({ topic }, { signal });
    },
    createGroup: async (topic, group, signal) => {
      await admin.createGroup({ topic, group: newGroup(group) }, { signal });
    },
    updateTopic: async (name, settings, changed, signal) => {
      const request = { topic: toTopicSettings(name, settings), updateMask: maskOf(topicPaths, changed) };
      await admin.updateTopic(request, { signal });
    },
    updateGroup: async (topic, name, settings, changed, signal) => {
      const request = { topic, group: toGroupSettings(name, settings), updateMask: maskOf(groupPaths, changed) };
      await admin.updateGroup(request, { signal });
    },
    trim: async (topic, messages, force, signal) => {
      const keep = { case: "maxMessages" as const, value: BigInt(messages) };
      const { removed, lost } = await admin.trimTopic({ topic, keep, force }, { signal });
      return { removed: Number(removed), lost: Number(lost) };
    },
    deleteTopic: async (topic, confirm, signal) => {
      await admin.deleteTopic({ topic, confirm }, { signal });
    },
    deleteGroup: async (topic, group, confirm, signal) => {
      await admin.deleteGroup({ topic, group, confirm }, { signal });
    },
    seekGroup: async (topic, group, to, signal) => {
      await admin.seekGroup({ topic, group, start: toStart(to) }, { signal });
    },
  };
}

function jobChanges(admin: Admin, queue: Client<typeof QueueService>): Pick<QueueClient, JobChanges> {
  return {
    retry: async (topic, group, messageIds, signal) =>
      Number((await admin.retryJobs({ topic, group, messageIds: [...messageIds] }, { signal })).retried),
    cancel: async (topic, messageIds, signal) => {
      const { results } = await queue.cancelMessages({ topic, messageIds: [...messageIds] }, { signal });
      return toOutcome(results.map((result) => result.error));
    },
    reschedule: async (topic, messageIds, delay, signal) => {
      const due = { case: "delay" as const, value: durationFromMs(delay) };
      const { results } = await queue.rescheduleMessages({ topic, messageIds: [...messageIds], due }, { signal });
      return toOutcome(results.map(({ result }) => (result.case === "error" ? result.value : undefined)));
    },
    produce: async (topic, { key, payload, delay }, signal) => {
      const due = delay > 0 ? { case: "delay" as const, value: durationFromMs(delay) } : { case: undefined };
      const messages = [{ key, payload: new TextEncoder().encode(payload), due }];
      const { results } = await queue.produce({ topic, messages }, { signal });
      const result = results[0]?.result;
      if (result?.case === "produced") return result.value.messageId;
      throw new Error(result?.case === "error" ? problem(result.value) : "The server returned no result.");
    },
  };
}

function problem(error: ItemError): string {
  return toOutcome([error]).problems[0] ?? "";
}

async function filled<T>(from: string, load: (pageToken: string) => Promise<Page<T>>): Promise<Page<T>> {
  let page = await load(from);
  for (let n = 1; n < pagesMost && page.items.length === 0 && page.next !== ""; n++) page = await load(page.next);
  return page;
}

function toSelection(which: Selection): MessageInitShape<typeof pb.DeadLetterSelectionSchema> {
  switch (which.kind) {
    case "ids":
      return { selection: { case: "ids", value: { deadLetterIds: [...which.ids] } } };
    case "group":
      return { selection: { case: "group", value: which.group } };
    case "all":
      return { selection: { case: "all", value: {} } };
  }
}

function toStart(to: "beginning" | "end" | Date): MessageInitShape<typeof pb.GroupStartSchema> {
  if (to instanceof Date) return { start: { case: "time", value: timestampFromDate(to) } };
  const value = to === "end" ? pb.StartPosition.END : pb.StartPosition.BEGINNING;
  return { start: { case: "position", value } };
}

const orderOf: Readonly<Record<Order, pb.DeliveryOrder>> = {
  key: pb.DeliveryOrder.KEY,
  strict: pb.DeliveryOrder.STRICT,
  none: pb.DeliveryOrder.NONE,
};

function newGroup(group: NewGroup): MessageInitShape<typeof pb.GroupSchema> {
  const { name, exclusive, order, maxAttempts, fromEnd } = group;
  return {
    name,
    mode: exclusive ? pb.GroupMode.EXCLUSIVE : pb.GroupMode.SHARED,
    order: orderOf[order],
    ...(maxAttempts > 0 && { retry: { maxAttempts } }),
    start: toStart(fromEnd ? "end" : "beginning"),
  };
}

const topicPaths: Readonly<Record<keyof TopicSettings, string>> = {
  partitions: "partitions",
  maxAge: "retention",
  keptMessages: "retention",
  deadLetterMaxAge: "retention",
  maxDeadLetters: "retention",
  maxMessages: "max_messages_per_partition",
  dropOldest: "drop_oldest",
  idempotencyWindow: "idempotency_window",
};

function toTopicSettings(name: string, s: TopicSettings): MessageInitShape<typeof pb.TopicSchema> {
  return {
    name,
    partitions: s.partitions,
    retention: {
      maxAge: durationFromMs(s.maxAge),
      maxMessages: BigInt(s.keptMessages),
      deadLetterMaxAge: durationFromMs(s.deadLetterMaxAge),
      maxDeadLetters: BigInt(s.maxDeadLetters),
    },
    maxMessagesPerPartition: BigInt(s.maxMessages),
    dropOldest: s.dropOldest,
    idempotencyWindow: durationFromMs(s.idempotencyWindow),
  };
}

const groupPaths: Readonly<Record<keyof GroupSettings, string>> = {
  order: "order",
  maxAttempts: "retry",
  minBackoff: "retry",
  maxBackoff: "retry",
  nonRetryable: "retry",
  ackTimeout: "ack_timeout",
  handlerTimeout: "handler_timeout",
  maxRunTime: "max_run_time",
  resumeGrace: "resume_grace",
};

function toGroupSettings(name: string, s: GroupSettings): MessageInitShape<typeof pb.GroupSchema> {
  return {
    name,
    order: orderOf[s.order],
    retry: {
      maxAttempts: s.maxAttempts,
      minBackoff: durationFromMs(s.minBackoff),
      maxBackoff: durationFromMs(s.maxBackoff),
      nonRetryableCodes: [...s.nonRetryable],
    },
    ackTimeout: durationFromMs(s.ackTimeout),
    handlerTimeout: durationFromMs(s.handlerTimeout),
    maxRunTime: durationFromMs(s.maxRunTime),
    resumeGrace: durationFromMs(s.resumeGrace),
  };
}

// The server's paths of settings, each once.
function maskOf<K extends string>(paths: Readonly<Record<K, string>>, changed: readonly K[]) {
  return { paths: [...new Set(changed.map((name) => paths[name]))] };
}
