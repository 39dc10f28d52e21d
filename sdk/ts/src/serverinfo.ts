import { ServerFeature as Features } from "@parleyhq/api/parley/v1/server_pb.js";
import type { Caller } from "./caller.js";
import { milliseconds, named } from "./convert.js";
import type { CallOptions } from "./options.js";

/** ServerInfo describes a server. */
export interface ServerInfo {
  /** The version of the server, for display: `1.4.0`, or `devel` for a build without a version. */
  version: string;
  limits: ServerLimits;
  /** The optional parts that the server has. Programs ignore values that they do not know. */
  features: ServerFeature[];
}

/**
 * ServerFeature is an optional part of a server: the name in server.proto without its prefix, or
 * `FEATURE_7` for a number that this SDK does not know.
 */
export type ServerFeature = Exclude<keyof typeof Features, "UNSPECIFIED"> | `FEATURE_${number}`;

/** ServerLimits are the limits of a server for its clients. */
export interface ServerLimits {
  /** The maximum size of a message's content, in bytes. */
  maxContentBytes: number;
  /** The maximum number of messages in one SendMessages request. sendBatch has no such limit. */
  maxBatchMessages: number;
  /** The maximum number of channels of one subscription. */
  maxChannelsPerStream: number;
  /** The maximum number of subscriptions of one subject on one node. */
  maxStreamsPerSubject: number;
  /** The maximum size of a queue message's payload, in bytes. */
  maxPayloadBytes: number;
  /** The maximum number of messages in one Produce or Schedule request. */
  maxProduceMessages: number;
  /** The maximum number of Consume streams of one subject on one node. */
  maxConsumersPerSubject: number;
  /** The maximum size of the content of a session's message, in bytes. */
  maxSessionContentBytes: number;
  /** The maximum time between two frames of a stream, in milliseconds. */
  heartbeatInterval: number;
}

export async function serverInfo(caller: Caller, options: CallOptions): Promise<ServerInfo> {
  const res = await caller.retry("GetServerInfo", options, (rpc, opts) => rpc.getServerInfo({}, opts));
  const limits = res.limits;
  return {
    version: res.version,
    limits: {
      maxContentBytes: limits?.maxContentBytes ?? 0,
      maxBatchMessages: limits?.maxBatchMessages ?? 0,
      maxChannelsPerStream: limits?.maxChannelsPerStream ?? 0,
      maxStreamsPerSubject: limits?.maxStreamsPerSubject ?? 0,
      maxPayloadBytes: limits?.maxPayloadBytes ?? 0,
      maxProduceMessages: limits?.maxProduceMessages ?? 0,
      maxConsumersPerSubject: limits?.maxConsumersPerSubject ?? 0,
      maxSessionContentBytes: limits?.maxSessionContentBytes ?? 0,
      heartbeatInterval: milliseconds(limits?.heartbeatInterval),
    },
    features: res.features
      .filter((feature) => feature !== Features.UNSPECIFIED)
      .map((feature) => named(Features, feature, "FEATURE") as ServerFeature),
  };
}
