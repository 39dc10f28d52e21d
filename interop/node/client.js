// Calls a Parley server with connect-es and code that protoc-gen-es generated, and prints the
// results as one JSON object.
//
// The only argument names the transport. The environment has the server's base URL, PARLEY_URL, and
// two tokens: PARLEY_TOKEN has every capability, PARLEY_WEAK_TOKEN lacks admin. PARLEY_NAME is the
// name of the channel, the topic and the group, which no other client uses.
import { setTimeout } from "node:timers/promises";
import { ConnectError, createClient } from "@connectrpc/connect";
import * as node from "@connectrpc/connect-node";
import * as web from "@connectrpc/connect-web";
import { AdminService } from "./gen/parley/v1/admin_pb.js";
import { MessageStatus } from "./gen/parley/v1/channel_pb.js";
import { ErrorDetailSchema } from "./gen/parley/v1/error_pb.js";
import { MessageService } from "./gen/parley/v1/message_pb.js";
import { Platform } from "./gen/parley/v1/platform_pb.js";
import { PresenceService } from "./gen/parley/v1/presence_pb.js";
import { QueueService } from "./gen/parley/v1/queue_pb.js";
import { ServerFeature, ServerService } from "./gen/parley/v1/server_pb.js";

const { PARLEY_URL: baseUrl, PARLEY_TOKEN: token, PARLEY_WEAK_TOKEN: weakToken, PARLEY_NAME: name } = process.env;
const limit = 30_000; // time limit of a call or a stream in milliseconds

const transports = {
  "web connect": (options) => web.createConnectTransport({ ...options, useHttpGet: true }),
  "web grpc-web": (options) => web.createGrpcWebTransport(options),
  "node connect": (options) => node.createConnectTransport({ ...options, httpVersion: "2" }),
  "node connect http/1.1": (options) => node.createConnectTransport({ ...options, httpVersion: "1.1" }),
  "node grpc": (options) => node.createGrpcTransport(options),
  "node grpc-web": (options) => node.createGrpcWebTransport({ ...options, httpVersion: "2" }),
};
const kind = process.argv[2];
// Browsers and HTTP/1.1 cannot stream both ways.
const bidirectional = kind.startsWith("node") && !kind.endsWith("http/1.1");

const bearer = (value) => (next) => (request) => {
  request.header.set("authorization", `Bearer ${value}`);
  return next(request);
};
const transport = (value) =>
  transports[kind]({ baseUrl, defaultTimeoutMs: limit, useBinaryFormat: false, interceptors: [bearer(value)] });

const messages = createClient(MessageService, transport(token));
const online = createClient(PresenceService, transport(token));
const queues = createClient(QueueService, transport(token));
const admin = createClient(AdminService, transport(token));
const stranger = createClient(AdminService, transport(weakToken));

// failure waits for a call that must fail, and returns its code and its ErrorDetail.
async function failure(call) {
  try {
    await call;
  } catch (cause) {
    const error = ConnectError.from(cause);
    const [detail] = error.findDetails(ErrorDetailSchema);
    return { code: error.code, reason: detail?.reason, field: detail?.field };
  }
  throw new Error("the call did not fail");
}

async function sendAndSubscribe() {
  const request = { channelId: name, content: "hello", clientMsgId: "m-1" };
  const first = await messages.sendMessage(request);
  const second = await messages.sendMessage(request);
  const listed = await messages.listMessages({ channelId: name });

  const events = [];
  let info;
  for await (const { frame } of messages.subscribe({ channels: [{ channelId: name, afterSeq: 0n }] })) {
    if (info === undefined) {
      if (frame.case !== "info") throw new Error(`the first frame is ${frame.case}`);
      info = frame.value;
    }
    for (const { event, seq, fromSeq } of frame.case === "events" ? frame.value.events : []) {
      const seen = { kind: event.case, seq: Number(seq), from_seq: Number(fromSeq) };
      if (event.case === "state") seen.head_seq = Number(event.value.headSeq);
      if (event.case === "sent") seen.content = event.value.content;
      events.push(seen);
    }
    if (events.at(-1)?.kind === "sent") break;
  }

  const edited = await messages.editMessage({ channelId: name, msgId: first.msgId, content: "hello again" });
  return {
    sent: { seq: Number(first.seq), duplicate: first.duplicate },
    repeated: { seq: Number(second.seq), duplicate: second.duplicate },
    listed: listed.messages.map((message) => message.content),
    info: {
      stream_id: info.streamId !== "",
      heartbeat: info.heartbeatInterval.seconds > 0n || info.heartbeatInterval.nanos > 0,
    },
    events,
    edited: {
      content: edited.message.content,
      edited: edited.message.status === MessageStatus.EDITED,
      changed_seq: Number(edited.message.changedSeq),
    },
    refused: await failure(messages.sendMessage({ channelId: name, content: "" })),
  };
}

// presence reads the presence of a user who was never online, and the first frame of Connect.
async function presence() {
  const { presence: states } = await online.getPresence({ userIds: ["nobody"] });
  const seen = { user: states[0].userId, platforms: states[0].platforms.length };
  for await (const { frame } of online.connect({ platform: Platform.LINUX, deviceId: name, watch: ["nobody"] })) {
    if (frame.case !== "info") throw new Error(`the first frame is ${frame.case}`);
    const { stream, presence: info } = frame.value;
    const watched = info.presence.users.map((user) => user.userId);
    return { ...seen, stream_id: stream.streamId !== "", login: info.loginToken !== "", watched };
  }
  throw new Error("the stream ended without a frame");
}

async function produce(payload) {
  const { results } = await queues.produce({ topic: name, messages: [{ payload: new TextEncoder().encode(payload) }] });
  if (results[0].result.case !== "produced") throw new Error(`produce: ${results[0].result.value.message}`);
}

const job = (delivery) => ({ payload: new TextDecoder().decode(delivery.payload), attempt: delivery.attempt });
const consumer = { topics: [name], group: name, consumer: "node", concurrency: 10 };

// acknowledge acknowledges a delivery of a session with a unary call.
async function acknowledge(sessionId, delivery) {
  const { results } = await queues.ack({ sessionId, tokens: [delivery.token] });
  return { ...job(delivery), acked: results[0].error === undefined };
}

// consume produces a job, consumes it, acknowledges it with a unary call, and leaves.
async function consume() {
  await produce("one");
  let sessionId;
  let seen;
  for await (const { frame } of queues.consume(consumer)) {
    if (frame.case === "started") sessionId = frame.value.sessionId;
    for (const delivery of frame.case === "deliveries" ? frame.value.deliveries : []) {
      seen = await acknowledge(sessionId, delivery);
      await queues.leave({ sessionId });
    }
  }
  return seen;
}

// receive produces a job, receives it without a stream, and acknowledges it.
async function receive() {
  await produce("three");
  const { sessionId, deliveries } = await queues.receive({ topic: name, group: name, wait: { seconds: 20n } });
  if (deliveries.length !== 1) throw new Error(`receive: ${deliveries.length} deliveries`);
  return await acknowledge(sessionId, deliveries[0]);
}

// consumeBothWays produces a job, consumes and acknowledges it on one bidirectional stream, and
// leaves.
async function consumeBothWays() {
  await produce("two");
  const requests = [{ request: { case: "start", value: consumer } }];
  let ended = false;
  let wake;
  async function* sending() {
    for (;;) {
      for (let request = requests.shift(); request !== undefined; request = requests.shift()) yield request;
      if (ended) return;
      await new Promise((resolve) => {
        wake = resolve;
      });
    }
  }
  const send = (call, value, requestId) => {
    requests.push({ requestId, request: { case: call, value } });
    wake();
  };
  let seen;
  for await (const { frame } of queues.streamingConsume(sending())) {
    if (frame.case === "consume" && frame.value.frame.case === "deliveries") {
      const [delivery] = frame.value.frame.value.deliveries;
      seen = job(delivery);
      send("ack", { tokens: [delivery.token] }, 7n);
    }
    if (frame.case === "results" && frame.value.requestId === 7n) {
      seen.acked = frame.value.error === undefined && frame.value.results[0].error === undefined;
      send("leave", {}, 0n);
    }
  }
  ended = true;
  wake();
  return seen;
}

// acked waits until the group has acknowledged want messages, at most for limit. It returns how
// many it has acknowledged.
async function acked(want) {
  for (const deadline = Date.now() + limit; ; await setTimeout(100)) {
    const { total } = await admin.getTopicStats({ topic: name });
    const seen = Number(total.groups[0].acked);
    if (seen === want || Date.now() > deadline) return seen;
  }
}

const info = await createClient(ServerService, transport(weakToken)).getServerInfo({});
const create = { topic: { name, partitions: 1 } };
const denied = await failure(stranger.createTopic(create));
const { topic } = await admin.createTopic(create);
await admin.createGroup({ topic: name, group: { name } });
const report = {
  server: {
    version: info.version !== "",
    max_content_bytes: info.limits.maxContentBytes,
    queues: info.features.includes(ServerFeature.QUEUES),
  },
  denied,
  partitions: topic.partitions,
  ...(await sendAndSubscribe()),
  presence: await presence(),
  job: await consume(),
};
if (bidirectional) report.bidi_job = await consumeBothWays();
report.received = await receive();
report.acked = await acked(bidirectional ? 3 : 2);
console.log(JSON.stringify(report));
process.exit(0); // otherwise open HTTP/2 connections keep the process alive
