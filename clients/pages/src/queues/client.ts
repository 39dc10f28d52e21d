import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Duration, durationMs, type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import { AdminService } from "@parleyhq/api/parley/v1/admin_pb.js";
import * as pb from "@parleyhq/api/parley/v1/admin_queue_pb.js";
import { type Server, serviceClient } from "../connection/service";
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

// The maximum page size. The client loads pages until there are no more.
const topicsPerPage = 1_000;

/** connect returns the model's client: AdminService of one server, with one token. */
export function connect(server: Server): QueueClient {
  const admin = serviceClient(AdminService, server);
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
    stats: async (topic, signal) => {
      const { total, partitions } = await admin.getTopicStats({ topic }, { signal });
      const each = partitions.map((p) => ({ ...toCounts(p), partition: p.partition }));
      return { total: toCounts(total), partitions: each };
    },
    owners: async (topic, group, signal) => {
      const { partitions } = await admin.listPartitions({ topic, group }, { signal });
      return partitions.map(toOwner);
    },
    pending: async (topic, group, by, pageSize, signal) => {
      const order = by === "attempts" ? pb.PendingOrder.ATTEMPTS : pb.PendingOrder.IDLE;
      const page = await admin.listPending({ topic, group, order, pageSize }, { signal });
      return { entries: page.pending.map(toPending), total: Number(page.total) };
    },
    letters: async (topic, group, pageToken, pageSize, signal) => {
      const page = await admin.listDeadLetters({ topic, group, pageToken, pageSize }, { signal });
      return { letters: page.deadLetters.map(toLetter), next: page.nextPageToken };
    },
    replay: async (topic, which, signal) => {
      const request = { topic, selection: toSelection(which) };
      const done = await admin.replayDeadLetters(request, { signal });
      return { replayed: Number(done.replayed), more: done.more };
    },
    purge: async (topic, which, confirm, signal) => {
      const request = { topic, selection: toSelection(which), confirm };
      return Number((await admin.purgeDeadLetters(request, { signal })).purged);
    },
    pause: async (topic, operations, signal) => {
      await admin.pauseTopic({ topic, operations: operations.map(toOperation) }, { signal });
    },
    resume: async (topic, operations, signal) => {
      await admin.resumeTopic({ topic, operations: operations.map(toOperation) }, { signal });
    },
    createTopic: async ({ name, partitions, maxAttempts, strictOrder }, signal) => {
      const retry = maxAttempts > 0 ? { maxAttempts } : {};
      await admin.createTopic({ topic: { name, partitions, strictOrder, retry } }, { signal });
    },
    createGroup: async (topic, group, fromEnd, signal) => {
      const value = fromEnd ? pb.StartPosition.END : pb.StartPosition.BEGINNING;
      const start = { start: { case: "position" as const, value } };
      await admin.createGroup({ topic, group, start }, { signal });
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
