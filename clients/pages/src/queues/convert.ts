import { type Duration, durationMs, type Timestamp, timestampDate } from "@bufbuild/protobuf/wkt";
import * as pb from "@parleyhq/api/parley/v1/admin_queue_pb.js";
import type { ItemError } from "@parleyhq/api/parley/v1/error_pb.js";
import type {
  Consumer,
  Counts,
  Group,
  GroupCounts,
  Job,
  JobInGroup,
  JobState,
  Lease,
  Letter,
  ListedState,
  Order,
  Outcome,
  Sample,
  Stats,
  Topic,
} from "./model/types";

/** states are the server's names of the states by which jobs can be listed. */
export const states: Readonly<Record<ListedState, pb.JobState>> = {
  scheduled: pb.JobState.SCHEDULED,
  waiting: pb.JobState.WAITING,
  sent: pb.JobState.SENT,
  running: pb.JobState.RUNNING,
  retrying: pb.JobState.RETRYING,
};

function ms(duration: Duration | undefined): number {
  return duration ? durationMs(duration) : 0;
}

function date(at: Timestamp | undefined): Date {
  return at ? timestampDate(at) : new Date(0);
}

function dateOrNull(at: Timestamp | undefined): Date | null {
  return at ? timestampDate(at) : null;
}

/** toTopic converts a topic. */
export function toTopic(t: pb.Topic): Topic {
  const { retention } = t;
  return {
    name: t.name,
    partitions: t.partitions,
    partitioner: pb.Partitioner[t.partitioner]?.toLowerCase().replaceAll("_", " ") ?? "",
    maxAge: ms(retention?.maxAge),
    keptMessages: Number(retention?.maxMessages ?? 0n),
    deadLetterMaxAge: ms(retention?.deadLetterMaxAge),
    maxDeadLetters: Number(retention?.maxDeadLetters ?? 0n),
    maxMessages: Number(t.maxMessagesPerPartition),
    dropOldest: t.dropOldest,
    idempotencyWindow: ms(t.idempotencyWindow),
    createTime: date(t.createTime).getTime(),
    paused: t.paused,
    groups: t.groups,
  };
}

const ordersOf: Partial<Record<pb.DeliveryOrder, Order>> = {
  [pb.DeliveryOrder.STRICT]: "strict",
  [pb.DeliveryOrder.NONE]: "none",
};

/** toGroup converts a group. */
export function toGroup(g: pb.Group): Group {
  return {
    name: g.name,
    exclusive: g.mode === pb.GroupMode.EXCLUSIVE,
    order: ordersOf[g.order] ?? "key",
    maxAttempts: g.retry?.maxAttempts ?? 0,
    minBackoff: ms(g.retry?.minBackoff),
    maxBackoff: ms(g.retry?.maxBackoff),
    nonRetryable: g.retry?.nonRetryableCodes ?? [],
    ackTimeout: ms(g.ackTimeout),
    handlerTimeout: ms(g.handlerTimeout),
    maxRunTime: ms(g.maxRunTime),
    resumeGrace: ms(g.resumeGrace),
    paused: g.paused,
  };
}

/** toStats converts the counts of a topic. */
export function toStats({ total, partitions, history }: pb.GetTopicStatsResponse): Stats {
  const each = partitions.map((p) => ({ ...toCounts(p), partition: p.partition }));
  return { total: toCounts(total), partitions: each, history: history.map(toSample) };
}

function toCounts(of: pb.TopicStats | pb.PartitionStats | undefined): Counts {
  return {
    length: Number(of?.length ?? 0n),
    scheduled: Number(of?.scheduled ?? 0n),
    produced: Number(of?.produced ?? 0n),
    deadLetters: Number(of?.deadLetters ?? 0n),
    groups: of?.groups.map(toGroupCounts) ?? [],
  };
}

function toGroupCounts(g: pb.GroupStats): GroupCounts {
  return {
    group: g.group,
    waiting: Number(g.waiting),
    running: Number(g.running),
    retrying: Number(g.retrying),
    acked: Number(g.acked),
    dead: Number(g.dead),
    cancelled: Number(g.cancelled),
    expired: Number(g.expired),
    trimmed: Number(g.trimmed),
    retried: Number(g.retried),
    redelivered: Number(g.redelivered),
    replayed: Number(g.replayed),
    oldestAge: ms(g.oldestAge),
    sessions: g.sessions,
    dispatched: g.dispatchedPartitions,
  };
}

function toSample(s: pb.TopicSample): Sample {
  return {
    at: date(s.time).getTime(),
    produced: Number(s.produced),
    groups: s.groups.map((g) => ({
      group: g.group,
      waiting: Number(g.waiting),
      running: Number(g.running),
      retrying: Number(g.retrying),
      acked: Number(g.acked),
      dead: Number(g.dead),
      retried: Number(g.retried),
    })),
  };
}

/** toLease converts the lease of a partition. */
export function toLease({ partition, nodeId, epoch, consumer }: pb.PartitionLease): Lease {
  return { partition, nodeId, epoch, consumer };
}

/** toJob converts a job. Without one it throws: the server always returns one. */
export function toJob(j: pb.JobInfo | undefined): Job {
  if (!j) throw new Error("The server returned no job.");
  const { messageId, partition, key, payload, headers, payloadBytes } = j;
  return {
    messageId,
    partition,
    key,
    payload,
    headers,
    payloadBytes,
    produceTime: dateOrNull(j.produceTime),
    dueTime: dateOrNull(j.dueTime),
    groups: j.groups.map(toJobInGroup),
  };
}

const jobStates: Partial<Record<pb.JobState, JobState>> = {
  [pb.JobState.SCHEDULED]: "scheduled",
  [pb.JobState.WAITING]: "waiting",
  [pb.JobState.SENT]: "sent",
  [pb.JobState.RUNNING]: "running",
  [pb.JobState.RETRYING]: "retrying",
  [pb.JobState.SETTLED]: "settled",
  [pb.JobState.DEAD]: "dead",
};

function toJobInGroup(g: pb.JobInGroup): JobInGroup {
  const { group, attempts, deliveries, consumer, session, nodeId, reason, code, suspect } = g;
  return {
    group,
    state: jobStates[g.state] ?? "",
    attempts,
    deliveries,
    consumer,
    session,
    nodeId,
    since: dateOrNull(g.sinceTime),
    retryTime: dateOrNull(g.retryTime),
    reason,
    code,
    suspect,
  };
}

const sessionStates: Partial<Record<pb.SessionState, Consumer["state"]>> = {
  [pb.SessionState.ATTACHED]: "attached",
  [pb.SessionState.DETACHED]: "detached",
  [pb.SessionState.LEAVING]: "leaving",
};

/** toConsumer converts a session. */
export function toConsumer(c: pb.ConsumerInfo): Consumer {
  const { consumer, session, nodeId, subject, concurrency, running, inFlight, oldestMessageId } = c;
  return {
    consumer,
    session,
    nodeId,
    subject,
    state: sessionStates[c.state] ?? "",
    since: dateOrNull(c.sinceTime),
    concurrency,
    running,
    inFlight,
    oldestMessageId,
    oldestTime: dateOrNull(c.oldestTime),
  };
}

/** toLetter converts a dead letter. */
export function toLetter(l: pb.DeadLetter): Letter {
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

/** toOutcome sums up the results of a call for several messages. undefined is a success. */
export function toOutcome(errors: readonly (ItemError | undefined)[]): Outcome {
  const failed = errors.filter((error) => error !== undefined);
  const problems = new Set(failed.map((error) => error.message));
  return { done: errors.length - failed.length, failed: failed.length, problems: [...problems] };
}
