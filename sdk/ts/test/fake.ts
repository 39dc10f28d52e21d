import { create, type MessageInitShape } from "@bufbuild/protobuf";
import { durationFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createConnectRouter, type HandlerContext } from "@connectrpc/connect";
import { createFetchHandler } from "@connectrpc/connect/protocol";
import * as channel from "@parleyhq/api/parley/v1/channel_pb.js";
import { ErrorDetailSchema, ErrorReason, type StatusCode } from "@parleyhq/api/parley/v1/error_pb.js";
import * as pb from "@parleyhq/api/parley/v1/message_pb.js";
import * as presence from "@parleyhq/api/parley/v1/presence_pb.js";
import { ServerFeature, ServerService } from "@parleyhq/api/parley/v1/server_pb.js";
import * as sub from "@parleyhq/api/parley/v1/subscription_pb.js";
import { Board } from "./fakepresence.js";
import { Sessions } from "./fakesession.js";
import { ChannelLog } from "./log.js";
import { FakeStream } from "./stream.js";

/** Fault replaces the answer to a call. With applied, the call's work is done first. */
export interface Fault {
  error?: ConnectError;
  /** If set, the connection breaks instead of an answer. */
  drop?: boolean;
  /** If set, there is never an answer. */
  hang?: boolean;
  applied?: boolean;
}

/** failure creates an error as Parley raises it. */
export function failure(
  code: Code,
  reason: ErrorReason | number,
  detail: MessageInitShape<typeof ErrorDetailSchema> = {},
): ConnectError {
  const value = { requestId: "test-request", ...detail, reason, retryable: reason >= 100 };
  return new ConnectError("scripted", code, undefined, [{ desc: ErrorDetailSchema, value }]);
}

/**
 * Fake is an in-memory Parley server whose faults the tests set. Clients use its fetch. The subject
 * of a token is the token itself.
 */
export class Fake {
  /** All requests, in order, each with its method. */
  readonly requests: { method: string; token: string; message: unknown }[] = [];
  readonly streams = new Set<FakeStream>();
  /** The revoked tokens. */
  readonly revoked = new Set<string>();
  /** The valid tokens. Undefined means that all are valid. */
  tokens: Set<string> | undefined;
  /**
   * Returns the fault of a call, or undefined for none. It is called before each call, and as
   * `SendMessages/<client_msg_id>` before each item of a batch.
   */
  fault: (method: string, message: unknown) => Fault | undefined = () => undefined;
  heartbeatMs = 15_000;
  /** Delays the answer to a unary call, after its work, and the first frame of a Connect stream. */
  hold: (method: string) => Promise<void> = async () => {};
  /** If set, Subscribe streams ignore presence, as those of an old server do. */
  legacy = false;
  /** If set, streams send nothing. */
  silent = false;
  /** If set, streams send every event twice. */
  repeat = false;
  /** If set, the server cannot be reached. */
  down = false;
  /** The presence of the users, and the logins. */
  readonly board = new Board(this);
  /** The sessions. Their logs are those of their channels. */
  readonly sessions = new Sessions(this);
  /** The role of every member. */
  role = channel.MemberRole.MEMBER;

  readonly #logs = new Map<string, ChannelLog>();
  readonly #handlers = new Map<string, (req: Request) => Promise<Response>>();
  readonly #dropped = new Set<string>();
  readonly #bodies = new Set<ReadableStreamDefaultController<Uint8Array>>();
  // The running requests. Without a reference, a request is garbage-collected and no longer
  // observes its signal.
  readonly #held = new Set<Request>();
  #calls = 0;
  #posted = 0;

  constructor() {
    const router = createConnectRouter()
      .service(pb.MessageService, {
        ...this.#service(),
        ...this.sessions.calls((method, work) => this.#call(method, work)),
      })
      .service(presence.PresenceService, {
        ...this.board.calls((method, work) => this.#call(method, work)),
        connect: (req: presence.ConnectRequest, context: HandlerContext) => this.#connect(req, context),
      })
      .service(ServerService, {
        getServerInfo: this.#call("GetServerInfo", () => ({
          version: "1.4.0",
          limits: {
            maxContentBytes: 65_536,
            maxChannelsPerStream: 500,
            maxSessionContentBytes: 131_072,
            heartbeatInterval: durationFromMs(15_000),
          },
          features: [ServerFeature.QUEUES, 99 as ServerFeature],
        })),
      });
    for (const handler of router.handlers) {
      this.#handlers.set(handler.requestPath, createFetchHandler(handler));
    }
  }

  /** fetch serves a call as if over a network. */
  readonly fetch = async (input: RequestInfo | URL, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    this.#held.add(request);
    const signal = init?.signal ?? undefined;
    signal?.throwIfAborted();
    if (this.down) {
      throw new TypeError("fetch failed");
    }
    const id = String(this.#calls++);
    request.headers.set("x-test-call", id);
    const handler = this.#handlers.get(new URL(request.url).pathname);
    const response = await handler?.(request);
    signal?.throwIfAborted();
    if (response === undefined || this.#dropped.has(id)) {
      throw new TypeError("terminated");
    }
    return new Response(this.#breakable(response.body, signal), response);
  };

  log(id: string): ChannelLog {
    let log = this.#logs.get(id);
    if (log === undefined) {
      log = new ChannelLog(id);
      this.#logs.set(id, log);
    }
    return log;
  }

  /** post appends messages as another client would. */
  post(id: string, n = 1, from = "bob"): void {
    for (let i = 0; i < n; i++) {
      const clientMsgId = `posted-${++this.#posted}`;
      this.log(id).send(from, { content: `message ${this.log(id).head + 1}`, clientMsgId });
    }
    this.wake();
  }

  wake(): void {
    for (const stream of this.streams) {
      stream.wake();
    }
  }

  /** faults sets the fault of the next n calls of a method. */
  faults(n: number, method: string, fault: Fault): void {
    let left = n;
    this.fault = (called) => (called === method && left-- > 0 ? fault : undefined);
  }

  /** endStreams ends all streams with an error, or without one as a broken connection does. */
  endStreams(error?: ConnectError): void {
    for (const stream of this.streams) {
      stream.end = { error };
      stream.wake();
    }
    if (error === undefined) {
      for (const body of this.#bodies) {
        body.error(new TypeError("terminated"));
      }
      this.#bodies.clear();
    }
  }

  /** revoke revokes a token, and ends its streams. */
  revoke(token: string): void {
    this.revoked.add(token);
    for (const stream of this.streams) {
      if (stream.user === token) {
        stream.end = { error: failure(Code.Unauthenticated, ErrorReason.TOKEN_REVOKED) };
        stream.wake();
      }
    }
  }

  /** advise ends all streams with the advice to reconnect. */
  advise(withinMs: number): void {
    for (const stream of this.streams) {
      stream.end = { withinMs };
      stream.wake();
    }
  }

  /** of returns the requests of one method. */
  of<T>(method: string): T[] {
    return this.requests.filter((r) => r.method === method).map((r) => r.message as T);
  }

  #breakable(body: ReadableStream<Uint8Array> | null, signal: AbortSignal | undefined): ReadableStream | null {
    if (body === null) {
      return null;
    }
    const reader = body.getReader();
    let mine: ReadableStreamDefaultController<Uint8Array>;
    return new ReadableStream({
      start: (controller) => {
        mine = controller;
        this.#bodies.add(controller);
        signal?.addEventListener("abort", () => {
          this.#bodies.delete(mine);
          controller.error(signal.reason);
        });
      },
      pull: async (controller) => {
        const { done, value } = await reader.read();
        if (done) {
          this.#bodies.delete(controller);
          controller.close();
        } else {
          controller.enqueue(value);
        }
      },
      cancel: (reason) => reader.cancel(reason),
    });
  }

  /** begin records a call and returns its fault. It throws if the token is not valid. */
  #begin(method: string, message: unknown, context: HandlerContext): Fault | undefined {
    const token = user(context);
    this.requests.push({ method, token, message });
    const fault = this.fault(method, message);
    if (this.revoked.has(token)) {
      throw failure(Code.Unauthenticated, ErrorReason.TOKEN_REVOKED);
    }
    if (this.tokens !== undefined && !this.tokens.has(token)) {
      throw failure(Code.Unauthenticated, ErrorReason.TOKEN_EXPIRED);
    }
    return fault;
  }

  async #happen(fault: Fault, context: HandlerContext): Promise<never> {
    if (fault.hang) {
      await new Promise((resolve) => context.signal.addEventListener("abort", resolve));
    }
    this.#dropped.add(context.requestHeader.get("x-test-call") ?? "");
    if (fault.error !== undefined) {
      this.#dropped.clear();
      throw fault.error;
    }
    throw new ConnectError("dropped", Code.Internal);
  }

  /** call returns the handler of a unary call. */
  #call<Req, Res>(method: string, work: (req: Req, user: string) => Res) {
    return async (req: Req, context: HandlerContext): Promise<Res> => {
      const fault = this.#begin(method, req, context);
      if (fault !== undefined && !fault.applied) {
        return this.#happen(fault, context);
      }
      const res = work(req, user(context));
      this.wake();
      await this.hold(method);
      return fault === undefined ? res : this.#happen(fault, context);
    };
  }

  #service() {
    const missing = () => failure(Code.NotFound, ErrorReason.MESSAGE_NOT_FOUND);
    const find = (channelId: string, msgId: string) => this.log(channelId).messages.find((m) => m.msgId === msgId);
    return {
      sendMessage: this.#call("SendMessage", (req: pb.SendMessageRequest, from) =>
        this.log(req.channelId).send(from, req),
      ),
      sendMessages: this.#call("SendMessages", (req: pb.SendMessagesRequest, from) => this.#batch(req, from)),
      getMessage: this.#call("GetMessage", (req: pb.GetMessageRequest) => {
        const message = find(req.channelId, req.msgId);
        if (message === undefined) {
          throw missing();
        }
        return { message, epoch: this.log(req.channelId).epoch };
      }),
      editMessage: this.#call("EditMessage", (req: pb.EditMessageRequest) => {
        const message = find(req.channelId, req.msgId);
        if (message === undefined) {
          throw missing();
        }
        const { seq, duplicate } = this.log(req.channelId).append(`edit ${req.clientMsgId}`, "edited", message);
        Object.assign(message, { content: req.content, status: channel.MessageStatus.EDITED });
        return { message, seq: BigInt(seq), duplicate, epoch: this.log(req.channelId).epoch };
      }),
      recallMessage: this.#call("RecallMessage", (req: pb.RecallMessageRequest) => {
        const message = find(req.channelId, req.msgId);
        if (message === undefined) {
          throw missing();
        }
        const { seq, duplicate } = this.log(req.channelId).append(`recall ${req.msgId}`, "recalled", message);
        Object.assign(message, { content: "", metadata: {}, status: channel.MessageStatus.RECALLED });
        return { message, seq: BigInt(seq), duplicate, epoch: this.log(req.channelId).epoch };
      }),
      listMessages: this.#call("ListMessages", (req: pb.ListMessagesRequest) => {
        const log = this.log(req.channelId);
        if (req.minSeq > BigInt(log.head)) {
          throw failure(Code.OutOfRange, ErrorReason.POSITION_OUT_OF_RANGE);
        }
        return log.page(req);
      }),
      subscribe: (req: sub.SubscribeRequest, context: HandlerContext) => this.#subscribe(req, context),
      updateSubscription: this.#call("UpdateSubscription", (req: sub.UpdateSubscriptionRequest, from) => {
        const stream = [...this.streams].find((s) => s.id === req.streamId);
        if (stream === undefined) {
          throw failure(Code.NotFound, ErrorReason.STREAM_NOT_FOUND);
        }
        this.#admit(req.add, from);
        stream.change(req.add, req.remove);
        return {};
      }),
      createChannel: this.#call("CreateChannel", (req: channel.CreateChannelRequest, from) => {
        const known = this.#logs.get(req.channelId);
        if (known !== undefined && (known.createKey !== req.idempotencyKey || req.idempotencyKey === "")) {
          throw failure(Code.AlreadyExists, ErrorReason.CHANNEL_EXISTS);
        }
        const log = known ?? this.log(req.channelId);
        if (known === undefined) {
          log.createKey = req.idempotencyKey;
          log.retention = req.retention;
          log.createdBy = from;
          log.members = req.membersOnly ? new Set([from, ...req.members.map((m) => m.userId)]) : undefined;
        }
        return { channel: log.info(), duplicate: known !== undefined };
      }),
      getChannel: this.#call("GetChannel", (req: channel.GetChannelRequest) => {
        const log = this.#logs.get(req.channelId);
        if (log === undefined) {
          throw failure(Code.NotFound, ErrorReason.CHANNEL_NOT_FOUND);
        }
        return { channel: log.info() };
      }),
      updateChannel: this.#call("UpdateChannel", (req: channel.UpdateChannelRequest) => {
        const log = this.log(req.channelId);
        if (req.etag !== "" && req.etag !== "etag-1") {
          throw failure(Code.FailedPrecondition, ErrorReason.ETAG_MISMATCH);
        }
        if (req.updateMask?.paths.includes("members_only")) {
          log.members = req.membersOnly ? (log.members ?? new Set([log.createdBy])) : undefined;
        } else {
          log.retention = req.retention;
        }
        return { channel: log.info() };
      }),
      deleteChannel: this.#call("DeleteChannel", (req: channel.DeleteChannelRequest) => {
        if (req.etag !== "" && req.etag !== "etag-1") {
          throw failure(Code.FailedPrecondition, ErrorReason.ETAG_MISMATCH);
        }
        return {};
      }),
      addMembers: this.#call("AddMembers", (req: channel.AddMembersRequest) => {
        for (const { userId } of req.members) {
          this.log(req.channelId).members?.add(userId);
        }
        return {};
      }),
      listMembers: this.#call("ListMembers", (req: channel.ListMembersRequest) => {
        const log = this.log(req.channelId);
        const members = [...(log.members ?? [])].sort();
        return { members: members.map((userId) => ({ userId, role: this.role })), epoch: log.epoch };
      }),
      removeMembers: this.#call("RemoveMembers", (req: channel.RemoveMembersRequest) => {
        for (const id of req.userIds) {
          this.log(req.channelId).members?.delete(id);
        }
        return {};
      }),
      markRead: this.#call("MarkRead", (req: channel.MarkReadRequest) => ({
        readSeq: req.seq,
        unread: 0n,
        epoch: this.log(req.channelId).epoch,
      })),
      listChannels: this.#call("ListChannels", (req: channel.ListChannelsRequest) => {
        const all = [...this.#logs.values()].map((log) => ({ channel: log.info() }));
        const from = Number(req.pageToken || 0);
        const size = req.pageSize || 50;
        return {
          channels: all.slice(from, from + size),
          nextPageToken: from + size < all.length ? `${from + size}` : "",
        };
      }),
      sendTyping: this.#call("SendTyping", (req: channel.SendTypingRequest, from) => {
        for (const stream of this.streams) {
          stream.typing(req.channelId, from);
        }
        return {};
      }),
    };
  }

  #batch(req: pb.SendMessagesRequest, from: string): MessageInitShape<typeof pb.SendMessagesResponseSchema> {
    const stopped = new Set<string>();
    const results = req.messages.map((item) => {
      const aborted = failure(Code.Aborted, ErrorReason.BATCH_ABORTED);
      const fault = stopped.has(item.channelId)
        ? { error: aborted }
        : this.fault(`SendMessages/${item.clientMsgId}`, item);
      if (fault === undefined || fault.applied) {
        const sent = this.log(item.channelId).send(from, item);
        if (fault === undefined) {
          return { result: { case: "sent" as const, value: sent } };
        }
      }
      const error = fault.error ?? aborted;
      const detail = error.details[0] as { value: MessageInitShape<typeof ErrorDetailSchema> };
      if (detail.value.retryable) {
        stopped.add(item.channelId);
      }
      // Both enums have gRPC's numbers.
      const code = error.code as number as StatusCode;
      const value = { code, message: error.rawMessage, detail: detail.value };
      return { result: { case: "error" as const, value } };
    });
    return { results };
  }

  /** admit throws NOT_MEMBER if the user may not subscribe to some of the channels. */
  #admit(channels: sub.ChannelPosition[], from: string): void {
    const refused = channels.filter((p) => !this.log(p.channelId).admits(from));
    if (refused.length > 0) {
      throw failure(Code.PermissionDenied, ErrorReason.NOT_MEMBER, {
        positions: refused.map((p) => ({ channelId: p.channelId })),
      });
    }
  }

  async *#connect(req: presence.ConnectRequest, context: HandlerContext) {
    const fault = this.#begin("Connect", req, context);
    if (fault !== undefined) {
      await this.#happen(fault, context);
    }
    await this.hold("Connect");
    const stream = new FakeStream(this, user(context));
    const info = this.board.begin(stream, req, user(context));
    this.streams.add(stream);
    try {
      const value = { streamId: stream.id, heartbeatInterval: durationFromMs(this.heartbeatMs) };
      yield create(presence.ConnectResponseSchema, {
        frame: { case: "info", value: { stream: value, presence: info } },
      });
      for await (const { frame } of stream.frames(context.signal)) {
        yield create(presence.ConnectResponseSchema, { frame } as presence.ConnectResponse);
      }
    } finally {
      this.streams.delete(stream);
    }
  }

  async *#subscribe(req: sub.SubscribeRequest, context: HandlerContext) {
    const fault = this.#begin("Subscribe", req, context);
    if (fault !== undefined) {
      await this.#happen(fault, context);
    }
    this.#admit(req.channels, user(context));
    const stream = new FakeStream(this, user(context));
    const asked = this.legacy ? undefined : req.presence;
    const info = asked && this.board.begin(stream, asked, user(context), false);
    this.streams.add(stream);
    try {
      stream.change(req.channels, []);
      const value = { streamId: stream.id, heartbeatInterval: durationFromMs(this.heartbeatMs) };
      yield create(sub.SubscribeResponseSchema, { frame: { case: "info", value } });
      if (info !== undefined) {
        yield create(sub.SubscribeResponseSchema, { frame: { case: "presenceInfo", value: info } });
      }
      yield* stream.frames(context.signal);
    } finally {
      this.streams.delete(stream);
    }
  }
}

function user(context: HandlerContext): string {
  return (context.requestHeader.get("authorization") ?? "").replace("Bearer ", "");
}

/** methodOf returns the method that a URL calls. */
export function methodOf(url: string): string {
  return new URL(url).pathname.split("/").at(-1) ?? "";
}
