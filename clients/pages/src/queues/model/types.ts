import type { Clock } from "../../connection/clock";

/** GroupCounts are the counts of a group in a partition or a whole topic: GroupStats as numbers. */
export interface GroupCounts {
  group: string;
  waiting: number;
  running: number;
  retrying: number;
  acked: number;
  dead: number;
  cancelled: number;
  expired: number;
  trimmed: number;
  retried: number;
  redelivered: number;
  replayed: number;
  /** The age of the oldest message that is not settled, in milliseconds. */
  oldestAge: number;
  /** The group's sessions. 0 in the counts of a partition. */
  sessions: number;
  /** The number of partitions that a node dispatches. */
  dispatched: number;
}

/** Counts are the counts of a topic or of a partition: TopicStats and PartitionStats as numbers. */
export interface Counts {
  length: number;
  scheduled: number;
  produced: number;
  deadLetters: number;
  groups: readonly GroupCounts[];
}

/** PartitionCounts are the counts of one partition. */
export interface PartitionCounts extends Counts {
  partition: number;
}

/** GroupSample has the counts of a group at one time. */
export type GroupSample = Pick<
  GroupCounts,
  "group" | "waiting" | "running" | "retrying" | "acked" | "dead" | "retried"
>;

/** Sample has the counts of a topic at one time, which the server recorded. */
export interface Sample {
  /** Milliseconds since 1970, according to the server's clock. */
  at: number;
  produced: number;
  groups: readonly GroupSample[];
}

/** Stats are the counts of a topic and of each of its partitions. */
export interface Stats {
  total: Counts;
  partitions: readonly PartitionCounts[];
  /** The samples of the last hour, oldest first. Empty unless they were requested. */
  history: readonly Sample[];
}

/** TopicSettings are the settings of a topic that can be changed. Times are in milliseconds. */
export interface TopicSettings {
  partitions: number;
  /** How long settled messages are kept. */
  maxAge: number;
  /** The number of messages of a partition beyond which settled ones are removed. 0: no limit. */
  keptMessages: number;
  /** How long dead letters are kept. 0 means forever. */
  deadLetterMaxAge: number;
  /** The maximum number of dead letters in each partition. 0 means the server's default. */
  maxDeadLetters: number;
  /** The maximum number of unsettled messages in each partition. 0 means no limit. */
  maxMessages: number;
  dropOldest: boolean;
  idempotencyWindow: number;
}

/** Topic is a topic with its settings. */
export interface Topic extends TopicSettings {
  name: string;
  partitioner: string;
  /** Milliseconds since 1970. It distinguishes the topic from an earlier one of the same name. */
  createTime: number;
  /** True if Produce is paused. */
  paused: boolean;
  groups: readonly string[];
}

/** orders are the orders of delivery within a key. */
export const orders = ["key", "strict", "none"] as const;

export type Order = (typeof orders)[number];

/** GroupSettings are the settings of a group that can be changed. Times are in milliseconds. */
export interface GroupSettings {
  order: Order;
  maxAttempts: number;
  minBackoff: number;
  maxBackoff: number;
  ackTimeout: number;
  handlerTimeout: number;
  maxRunTime: number;
  resumeGrace: number;
  /** The codes with which a failed message is not retried. */
  nonRetryable: readonly string[];
}

/** Group is a consumer group with its settings. */
export interface Group extends GroupSettings {
  name: string;
  exclusive: boolean;
  paused: boolean;
}

/** Lease says which node dispatches a partition to a group. */
export interface Lease {
  partition: number;
  /** Empty if no node does. */
  nodeId: string;
  epoch: bigint;
  /** The consumer that gets the messages. Empty in a shared group. */
  consumer: string;
}

/** listedStates are the states by which jobs can be listed. */
export const listedStates = ["scheduled", "waiting", "sent", "running", "retrying"] as const;

export type ListedState = (typeof listedStates)[number];

/** JobState is the state of a message in a group. Empty if it is not known. */
export type JobState = ListedState | "settled" | "dead" | "";

/** JobInGroup is the state of a message in one group. */
export interface JobInGroup {
  group: string;
  state: JobState;
  attempts: number;
  deliveries: number;
  /** The consumer that has it, its session and its node. Empty if there is none or not known. */
  consumer: string;
  session: string;
  nodeId: string;
  since: Date | null;
  retryTime: Date | null;
  reason: string;
  code: string;
  suspect: boolean;
}

/** Job is a message and its state in groups. */
export interface Job {
  messageId: string;
  partition: number;
  key: string;
  payload: Uint8Array;
  headers: Readonly<Record<string, string>>;
  payloadBytes: number;
  produceTime: Date | null;
  dueTime: Date | null;
  groups: readonly JobInGroup[];
}

/** JobQuery selects jobs of a topic. An empty state or key means all. */
export interface JobQuery {
  topic: string;
  group: string;
  state: ListedState | "";
  key: string;
}

/** Page is a page of a list. An empty next means that there are no more. */
export interface Page<T> {
  items: readonly T[];
  next: string;
}

/** Consumer is one session of a group. */
export interface Consumer {
  consumer: string;
  session: string;
  nodeId: string;
  subject: string;
  state: "attached" | "detached" | "leaving" | "";
  since: Date | null;
  concurrency: number;
  running: number;
  inFlight: number;
  oldestMessageId: string;
  oldestTime: Date | null;
}

/** Consumers are the sessions of a group, without those of the nodes that did not answer. */
export interface Consumers extends Page<Consumer> {
  missingNodes: readonly string[];
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

/** Selection selects dead letters of a topic for a call. */
export type Selection =
  | { kind: "ids"; ids: readonly string[] }
  /** All dead letters of one group. */
  | { kind: "group"; group: string }
  /** All dead letters of the topic. */
  | { kind: "all" };

/** LetterQuery selects dead letters of a topic. An empty group or code means all. */
export interface LetterQuery {
  topic: string;
  group: string;
  code: string;
}

/** NewTopic is a topic to create. 0 partitions mean the server's default. */
export interface NewTopic {
  name: string;
  partitions: number;
}

/** NewGroup is a group to create. 0 attempts mean the server's default. */
export interface NewGroup {
  name: string;
  exclusive: boolean;
  order: Order;
  maxAttempts: number;
  fromEnd: boolean;
}

/** NewMessage is a message to produce. delay is in milliseconds, 0 for none. */
export interface NewMessage {
  key: string;
  payload: string;
  delay: number;
}

/**
 * Outcome is the result of a call for several messages: for how many it succeeded, and why not for
 * the others, each reason once.
 */
export interface Outcome {
  done: number;
  failed: number;
  problems: readonly string[];
}

/**
 * QueueClient is the part of AdminService and QueueService that the model uses. A call makes
 * one attempt. It rejects with an error that failure() converts.
 */
export interface QueueClient {
  /** Returns all topics, ordered by name. */
  topics(signal: AbortSignal): Promise<Topic[]>;
  stats(topic: string, history: boolean, signal: AbortSignal): Promise<Stats>;
  groups(topic: string, signal: AbortSignal): Promise<Group[]>;
  leases(topic: string, group: string, signal: AbortSignal): Promise<Lease[]>;
  /** Returns a page of jobs without payloads and headers. */
  jobs(query: JobQuery, page: string, limit: number, signal: AbortSignal): Promise<Page<Job>>;
  job(topic: string, messageId: string, signal: AbortSignal): Promise<Job>;
  consumers(topic: string, group: string, page: string, limit: number, signal: AbortSignal): Promise<Consumers>;
  /** Returns a page of dead letters, newest first. */
  letters(query: LetterQuery, page: string, limit: number, signal: AbortSignal): Promise<Page<Letter>>;
  /** Replays up to 1,000 dead letters. more reports whether there may be others. */
  replay(
    topic: string,
    which: Selection,
    toTopic: string,
    signal: AbortSignal,
  ): Promise<{ replayed: number; more: boolean }>;
  purge(topic: string, which: Selection, confirm: string, signal: AbortSignal): Promise<number>;
  pauseTopic(topic: string, paused: boolean, signal: AbortSignal): Promise<void>;
  pauseGroup(topic: string, group: string, paused: boolean, signal: AbortSignal): Promise<void>;
  createTopic(topic: NewTopic, signal: AbortSignal): Promise<void>;
  createGroup(topic: string, group: NewGroup, signal: AbortSignal): Promise<void>;
  /**
   * Changes the settings that changed names, at least one. The server changes related ones
   * together, so settings has the others' current values.
   */
  updateTopic(
    topic: string,
    settings: TopicSettings,
    changed: readonly (keyof TopicSettings)[],
    signal: AbortSignal,
  ): Promise<void>;
  updateGroup(
    topic: string,
    group: string,
    settings: GroupSettings,
    changed: readonly (keyof GroupSettings)[],
    signal: AbortSignal,
  ): Promise<void>;
  /**
   * Removes the oldest messages of each partition, except the number to keep and those that groups
   * have not settled. With force it removes these too. lost is the number of them.
   */
  trim(topic: string, keep: number, force: boolean, signal: AbortSignal): Promise<{ removed: number; lost: number }>;
  deleteTopic(topic: string, confirm: string, signal: AbortSignal): Promise<void>;
  deleteGroup(topic: string, group: string, confirm: string, signal: AbortSignal): Promise<void>;
  /** Moves a group to the beginning or the end of the topic, or to a time. */
  seekGroup(topic: string, group: string, to: "beginning" | "end" | Date, signal: AbortSignal): Promise<void>;
  /** Makes messages that wait for a retry due now. The result is the number of these. */
  retry(topic: string, group: string, messageIds: readonly string[], signal: AbortSignal): Promise<number>;
  cancel(topic: string, messageIds: readonly string[], signal: AbortSignal): Promise<Outcome>;
  /** Makes scheduled messages due after a delay in milliseconds. */
  reschedule(topic: string, messageIds: readonly string[], delay: number, signal: AbortSignal): Promise<Outcome>;
  produce(topic: string, message: NewMessage, signal: AbortSignal): Promise<string>;
}

/** Environment is the environment of the model. Tests replace the clock. */
export interface Environment extends Clock {
  /** Reports whether the page is hidden. */
  hidden(): boolean;
  /** Returns a random number from 0 to less than 1. */
  random(): number;
}

/**
 * backlog returns the number of messages that a group has not settled: those that wait, run or wait
 * for a retry.
 */
export function backlog(group: Pick<GroupCounts, "waiting" | "running" | "retrying">): number {
  return group.waiting + group.running + group.retrying;
}

/** sum returns the sum of a number over the groups. */
export function sum<G>(groups: readonly G[], of: (group: G) => number): number {
  return groups.reduce((total, group) => total + of(group), 0);
}
