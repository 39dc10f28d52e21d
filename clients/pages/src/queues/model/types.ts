import type { Clock } from "../../connection/clock";

/** What a group has to do in a partition or a whole topic, and what it has done: GroupStats as numbers. */
export interface GroupCounts {
  group: string;
  unread: number;
  pending: number;
  retrying: number;
  parked: number;
  acked: number;
  dead: number;
  retried: number;
  replayed: number;
  trimmed: number;
  skipped: number;
  /** Of the oldest message that is not settled, in milliseconds. */
  oldestAge: number;
  consumers: number;
  ownedPartitions: number;
}

/** The counts of a whole topic or of one partition: TopicStats and PartitionStats as numbers. */
export interface Counts {
  length: number;
  delayed: number;
  produced: number;
  cancelled: number;
  deadLetters: number;
  groups: readonly GroupCounts[];
}

/** The counts of one partition. */
export interface PartitionCounts extends Counts {
  partition: number;
}

/** The counts of a topic and of each of its partitions. */
export interface Stats {
  total: Counts;
  partitions: readonly PartitionCounts[];
}

/** A topic's settings, as far as the page shows them. */
export interface Topic {
  name: string;
  partitions: number;
  partitioner: string;
  strictOrder: boolean;
  maxAttempts: number;
  /** Of each partition; 0 is without limit. */
  maxMessages: number;
  dropOldest: boolean;
  /** Milliseconds since 1970. It tells a topic from an earlier one of the same name. */
  createTime: number;
  producePaused: boolean;
  consumePaused: boolean;
  groups: readonly string[];
}

/** The owner of a partition in a group. The strings are empty if there is none. */
export interface Owner {
  partition: number;
  consumer: string;
  streamId: string;
  nodeId: string;
  epoch: bigint;
  /** Milliseconds. */
  leaseLeft: number;
}

/** A delivery that is not settled. */
export interface PendingEntry {
  messageId: string;
  partition: number;
  consumer: string;
  attempt: number;
  /** Milliseconds since it was delivered. */
  idle: number;
}

/** A message that was given up. */
export interface Letter {
  id: string;
  messageId: string;
  partition: number;
  group: string;
  key: string;
  payload: Uint8Array;
  headers: Readonly<Record<string, string>>;
  attempts: number;
  reason: string;
  code: string;
  produceTime: Date;
  deadLetterTime: Date;
}

/** How the pending deliveries are sorted. */
export type PendingOrder = "idle" | "attempts";

/** An operation on a topic that can be paused. */
export type Operation = "produce" | "consume";

/** Which dead letters of a topic a call is about. */
export type Selection =
  | { kind: "ids"; ids: readonly string[] }
  /** All of one group. */
  | { kind: "group"; group: string }
  /** All of the topic. */
  | { kind: "all" };

/** A topic to be made; what is 0 is the server's default. */
export interface NewTopic {
  name: string;
  partitions: number;
  maxAttempts: number;
  strictOrder: boolean;
}

/** What the model needs of AdminService. Each call is made once; it rejects with what failure() reads. */
export interface QueueClient {
  /** All topics by name. */
  topics(signal: AbortSignal): Promise<Topic[]>;
  stats(topic: string, signal: AbortSignal): Promise<Stats>;
  owners(topic: string, group: string, signal: AbortSignal): Promise<Owner[]>;
  pending(
    topic: string,
    group: string,
    order: PendingOrder,
    limit: number,
    signal: AbortSignal,
  ): Promise<{ entries: PendingEntry[]; total: number }>;
  /** The newest first; an empty group is all groups, and an empty next is the end. */
  letters(
    topic: string,
    group: string,
    page: string,
    limit: number,
    signal: AbortSignal,
  ): Promise<{ letters: Letter[]; next: string }>;
  /** Replays up to 1,000 dead letters. more reports whether there may be others. */
  replay(topic: string, which: Selection, signal: AbortSignal): Promise<{ replayed: number; more: boolean }>;
  purge(topic: string, which: Selection, confirm: string, signal: AbortSignal): Promise<number>;
  /** Pauses these operations, at least one. The others do not change. */
  pause(topic: string, operations: readonly Operation[], signal: AbortSignal): Promise<void>;
  /** Resumes these operations, at least one. The others do not change. */
  resume(topic: string, operations: readonly Operation[], signal: AbortSignal): Promise<void>;
  createTopic(topic: NewTopic, signal: AbortSignal): Promise<void>;
  createGroup(topic: string, group: string, fromEnd: boolean, signal: AbortSignal): Promise<void>;
}

/** What the model needs of its surroundings, so that tests own the clock. */
export interface Surroundings extends Clock {
  /** Whether nobody sees the page. */
  hidden(): boolean;
  /** From 0 to less than 1. */
  random(): number;
}

/** What a group has yet to settle: never delivered, in flight, waiting for a retry or for an earlier message of the key. */
export function lag(group: GroupCounts): number {
  return group.unread + group.pending + group.retrying + group.parked;
}

/** The sum of something over a topic's groups. */
export function sum(groups: readonly GroupCounts[], of: (group: GroupCounts) => number): number {
  return groups.reduce((total, group) => total + of(group), 0);
}
