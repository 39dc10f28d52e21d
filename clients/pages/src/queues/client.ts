import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, durationMs, type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { type CallOptions, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AdminService } from "@parleyhq/api/parley/v1/admin_pb.js";
import * as pb from "@parleyhq/api/parley/v1/admin_queue_pb.js";
import { ErrorDetailSchema, ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import type {
  Counts,
  GroupCounts,
  Letter,
  Operation,
  Owner,
  PendingEntry,
  QueueClient,
  Selection,
  Topic,
} from "./model/types";

// As long as the answers say that there are more.
const topicsPerPage = 1_000;

/** Makes the model's client of AdminService, for one server and one token. */
export function connect(address: string, token: string): QueueClient {
  const admin = createClient(AdminService, createConnectTransport({ baseUrl: address, useBinaryFormat: true }));
  const call = async <T>(signal: AbortSignal, make: (options: CallOptions) => Promise<T>): Promise<T> => {
    try {
      return await make({ signal, headers: { authorization: `Bearer ${token}` } });
    } catch (cause) {
      throw readable(cause, signal);
    }
  };
  return {
    topics: async (signal) => {
      const topics: Topic[] = [];
      for (let pageToken = ""; ; ) {
        const page = await call(signal, (o) => admin.listTopics({ pageSize: topicsPerPage, pageToken }, o));
        topics.push(...page.topics.map(toTopic));
        pageToken = page.nextPageToken;
        if (pageToken === "") return topics;
      }
    },
    stats: async (topic, signal) => {
      const { total, partitions } = await call(signal, (o) => admin.getTopicStats({ topic }, o));
      const each = partitions.map((p) => ({ ...toCounts(p), partition: p.partition }));
      return { total: toCounts(total), partitions: each };
    },
    owners: async (topic, group, signal) => {
      const { partitions } = await call(signal, (o) => admin.listPartitions({ topic, group }, o));
      return partitions.map(toOwner);
    },
    pending: async (topic, group, by, pageSize, signal) => {
      const order = by === "attempts" ? pb.PendingOrder.ATTEMPTS : pb.PendingOrder.IDLE;
      const page = await call(signal, (o) => admin.listPending({ topic, group, order, pageSize }, o));
      return { entries: page.pending.map(toPending), total: Number(page.total) };
    },
    letters: async (topic, group, pageToken, pageSize, signal) => {
      const page = await call(signal, (o) => admin.listDeadLetters({ topic, group, pageToken, pageSize }, o));
      return { letters: page.deadLetters.map(toLetter), next: page.nextPageToken };
    },
    replay: async (topic, which, signal) => {
      const request = { topic, selection: toSelection(which) };
      const done = await call(signal, (o) => admin.replayDeadLetters(request, o));
      return { replayed: Number(done.replayed), more: done.more };
    },
    purge: async (topic, which, confirm, signal) => {
      const request = { topic, selection: toSelection(which), confirm };
      return Number((await call(signal, (o) => admin.purgeDeadLetters(request, o))).purged);
    },
    pause: async (topic, operations, signal) => {
      await call(signal, (o) => admin.pauseTopic({ topic, operations: operations.map(toOperation) }, o));
    },
    resume: async (topic, operations, signal) => {
      await call(signal, (o) => admin.resumeTopic({ topic, operations: operations.map(toOperation) }, o));
    },
    createTopic: async ({ name, partitions, maxAttempts, strictOrder }, signal) => {
      const retry = maxAttempts > 0 ? { maxAttempts } : {};
      await call(signal, (o) => admin.createTopic({ topic: { name, partitions, strictOrder, retry } }, o));
    },
    createGroup: async (topic, group, fromEnd, signal) => {
      const value = fromEnd ? pb.StartPosition.END : pb.StartPosition.BEGINNING;
      const start = { start: { case: "position" as const, value } };
      await call(signal, (o) => admin.createGroup({ topic, group, start }, o));
    },
  };
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

function toOperation(operation: Operation): pb.TopicOperation {
  return operation === "produce" ? pb.TopicOperation.PRODUCE : pb.TopicOperation.CONSUME;
}

// What the model's failure() reads of an error: reason, code, message and field, as the SDK's errors have them.
function readable(cause: unknown, signal: AbortSignal): Error {
  const error = ConnectError.from(cause);
  const detail = error.findDetails(ErrorDetailSchema)[0];
  const late = signal.aborted && (signal.reason as Error | undefined)?.name === "TimeoutError";
  const request = detail?.requestId ? ` (request ${detail.requestId})` : "";
  const text = late ? "The server did not answer in time." : unreachable(error) ? "The server can't be reached." : "";
  return Object.assign(new Error(text || `${error.rawMessage}${request}`, { cause }), {
    code: error.code,
    reason: detail ? (ErrorReason[detail.reason] ?? "") : "",
    field: detail?.field ?? "",
  });
}

// fetch tells a broken connection by a TypeError, whose text is the browser's own.
function unreachable(error: ConnectError): boolean {
  return error.cause instanceof TypeError;
}

function ms(duration: Duration | undefined): number {
  return duration ? durationMs(duration) : 0;
}

function date(at: Timestamp | undefined): Date {
  return at ? timestampDate(at) : new Date(0);
}

function toTopic(t: pb.Topic): Topic {
  return {
    name: t.name,
    partitions: t.partitions,
    partitioner: pb.Partitioner[t.partitioner]?.toLowerCase().replaceAll("_", " ") ?? "",
    strictOrder: t.strictOrder,
    maxAttempts: t.retry?.maxAttempts ?? 0,
    maxMessages: Number(t.maxMessagesPerPartition),
    dropOldest: t.dropOldest,
    createTime: date(t.createTime).getTime(),
    producePaused: t.producePaused,
    consumePaused: t.consumePaused,
    groups: t.groups,
  };
}

function toCounts(of: pb.TopicStats | pb.PartitionStats | undefined): Counts {
  return {
    length: Number(of?.length ?? 0n),
    delayed: Number(of?.delayed ?? 0n),
    produced: Number(of?.produced ?? 0n),
    cancelled: Number(of?.cancelled ?? 0n),
    deadLetters: Number(of?.deadLetters ?? 0n),
    groups: of?.groups.map(toGroup) ?? [],
  };
}

function toGroup(g: pb.GroupStats): GroupCounts {
  return {
    group: g.group,
    unread: Number(g.unread),
    pending: Number(g.pending),
    retrying: Number(g.retrying),
    parked: Number(g.parked),
    acked: Number(g.acked),
    dead: Number(g.dead),
    retried: Number(g.retried),
    replayed: Number(g.replayed),
    trimmed: Number(g.trimmed),
    skipped: Number(g.skipped),
    oldestAge: ms(g.oldestAge),
    consumers: g.consumers,
    ownedPartitions: g.ownedPartitions,
  };
}

function toOwner(o: pb.PartitionOwner): Owner {
  const { partition, consumer, streamId, nodeId, epoch } = o;
  return { partition, consumer, streamId, nodeId, epoch, leaseLeft: ms(o.leaseLeft) };
}

function toPending(p: pb.PendingDelivery): PendingEntry {
  const { messageId, partition, consumer, attempt } = p;
  return { messageId, partition, consumer, attempt, idle: ms(p.idle) };
}

function toLetter(l: pb.DeadLetter): Letter {
  const { messageId, partition, group, key, payload, headers, attempts, reason, code } = l;
  return {
    id: l.deadLetterId,
    messageId,
    partition,
    group,
    key,
    payload,
    headers,
    attempts,
    reason,
    code,
    produceTime: date(l.produceTime),
    deadLetterTime: date(l.deadLetterTime),
  };
}
