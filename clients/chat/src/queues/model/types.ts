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

/** What a partition or a whole topic holds: PartitionStats as numbers. */
export interface Counts {
  partition: number;
  length: number;
  delayed: number;
  produced: number;
  cancelled: number;
  deadLetters: number;
  groups: readonly GroupCounts[];
}

/** What a topic holds, and each of its partitions. */
export interface Stats {
  total: Counts;
  partitions: readonly Counts[];
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
  createdAt: number;
  producePaused: boolean;
  consumePaused: boolean;
  groups: readonly string[];
}

/** Who has a partition for a group; empty strings if nobody does. */
export interface Owner {
  partition: number;
  consumer: string;
  sessionId: string;
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
  producedAt: Date;
  deadAt: Date;
}

/** How the pending deliveries are sorted. */
export type PendingOrder = "idle" | "attempts";

/** What of a topic is stopped. */
export type Paused = "produce" | "consume" | "both";

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
  /** No ids are all. */
  replay(
    topic: string,
    group: string,
    ids: readonly string[],
    signal: AbortSignal,
  ): Promise<{ replayed: number; more: boolean }>;
  purge(topic: string, group: string, ids: readonly string[], confirm: string, signal: AbortSignal): Promise<number>;
  pause(topic: string, what: Paused, signal: AbortSignal): Promise<void>;
  resume(topic: string, signal: AbortSignal): Promise<void>;
  createTopic(topic: NewTopic, signal: AbortSignal): Promise<void>;
  createGroup(topic: string, group: string, fromEnd: boolean, signal: AbortSignal): Promise<void>;
}

/** What the model needs of its surroundings, so that tests own the clock. */
export interface Surroundings {
  /** Milliseconds since 1970. */
  now(): number;
  /** Calls back after so many milliseconds; the answer cancels it. */
  after(ms: number, callback: () => void): () => void;
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
