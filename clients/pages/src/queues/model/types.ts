import type { Clock } from "../../connection/clock";

/** GroupCounts are the counts of a group in a partition or a whole topic: GroupStats as numbers. */
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
  /** The age of the oldest message that is not settled, in milliseconds. */
  oldestAge: number;
  consumers: number;
  ownedPartitions: number;
}

/** Counts are the counts of a topic or of a partition: TopicStats and PartitionStats as numbers. */
export interface Counts {
  length: number;
  delayed: number;
  produced: number;
  cancelled: number;
  deadLetters: number;
  groups: readonly GroupCounts[];
}

/** PartitionCounts are the counts of one partition. */
export interface PartitionCounts extends Counts {
  partition: number;
}

/** Stats are the counts of a topic and of each of its partitions. */
export interface Stats {
  total: Counts;
  partitions: readonly PartitionCounts[];
}

/** Topic has the settings of a topic that the page shows. */
export interface Topic {
  name: string;
  partitions: number;
  partitioner: string;
  strictOrder: boolean;
  maxAttempts: number;
  /** The maximum number of messages in each partition. 0 means no limit. */
  maxMessages: number;
  dropOldest: boolean;
  /** Milliseconds since 1970. It distinguishes the topic from an earlier one of the same name. */
  createTime: number;
  producePaused: boolean;
  consumePaused: boolean;
  groups: readonly string[];
}

/** Owner is the owner of a partition in a group. The strings are empty if there is none. */
export interface Owner {
  partition: number;
  consumer: string;
  streamId: string;
  nodeId: string;
  epoch: bigint;
  /** The remaining time of the lease, in milliseconds. */
  leaseLeft: number;
}

/** PendingEntry is a delivery that is not settled. */
export interface PendingEntry {
  messageId: string;
  partition: number;
  consumer: string;
  attempt: number;
  /** The time since it was delivered, in milliseconds. */
  idle: number;
}

/** Letter is a dead letter. */
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

/** PendingOrder is the order of pending deliveries: longest idle first, or most attempts first. */
export type PendingOrder = "idle" | "attempts";

/** Operation is an operation on a topic that can be paused. */
export type Operation = "produce" | "consume";

/** Selection selects dead letters of a topic for a call. */
export type Selection =
  | { kind: "ids"; ids: readonly string[] }
  /** All dead letters of one group. */
  | { kind: "group"; group: string }
  /** All dead letters of the topic. */
  | { kind: "all" };

/** NewTopic is a topic to create. 0 partitions or 0 attempts mean the server's default. */
export interface NewTopic {
  name: string;
  partitions: number;
  maxAttempts: number;
  strictOrder: boolean;
}

/**
 * QueueClient is the part of AdminService that the model uses. A call makes one attempt. It rejects
 * with an error that failure() converts.
 */
export interface QueueClient {
  /** Returns all topics, ordered by name. */
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
  /**
   * Returns a page of dead letters, newest first. An empty group means all groups; an empty next
   * means that there are no more.
   */
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

/** Environment is the environment of the model. Tests replace the clock. */
export interface Environment extends Clock {
  /** Reports whether the page is hidden. */
  hidden(): boolean;
  /** Returns a random number from 0 to less than 1. */
  random(): number;
}

/**
 * lag returns the number of messages that a group has not settled: never delivered, in flight,
 * waiting for a retry, or waiting for an earlier message of the key.
 */
export function lag(group: GroupCounts): number {
  return group.unread + group.pending + group.retrying + group.parked;
}

/** sum returns the sum of a number over the groups. */
export function sum(groups: readonly GroupCounts[], of: (group: GroupCounts) => number): number {
  return groups.reduce((total, group) => total + of(group), 0);
}
