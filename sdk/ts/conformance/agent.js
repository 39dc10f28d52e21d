// The TypeScript SDK's conformance agent. It runs the driver's commands with the built package. See
// sdk/conformance/PROTOCOL.md.
import { createInterface } from "node:readline";
import { codeToString } from "@connectrpc/connect/protocol-connect";
import { after, Client, ClosedError, fromStart, InterruptedError, live, ParleyError } from "@parleyhq/sdk";

class AgentError extends Error {}

/** Returns the value of a handle, and throws an AgentError for an unknown one. */
function find(map, handle) {
  if (!map.has(handle)) {
    throw new AgentError(`no such handle: ${handle}`);
  }
  return map.get(handle);
}

const clients = new Map();
const subscriptions = new Map();
const presences = new Map();
/** The open messages of sessions. */
const opened = new Map();
/** The controllers of the running commands, by id. */
const underWay = new Map();

/** Returns a token source that performs the steps in order, and repeats the last one. */
function scripted(client, steps) {
  return async () => {
    const step = steps[Math.min(client.tokenCalls, steps.length - 1)];
    client.tokenCalls++;
    if (step.delayMs) {
      await new Promise((resolve) => setTimeout(resolve, step.delayMs));
    }
    if (step.error === undefined) {
      return step.token;
    }
    throw step.final ? new ParleyError({ reason: "TOKEN_INVALID", message: step.error }) : new Error(step.error);
  };
}

function newClient({ client: handle, addresses, token, tokens, attemptTimeoutMs, callTimeoutMs, backoff, protocol }) {
  const client = { tokenCalls: 0, sdk: undefined };
  client.sdk = new Client(addresses, {
    token,
    tokenSource: tokens && scripted(client, tokens),
    attemptTimeout: attemptTimeoutMs,
    callTimeout: callTimeoutMs,
    backoff: backoff && { base: backoff.baseMs, max: backoff.maxMs },
    protocol,
    log: (level, message, fields) => console.error(level, message, JSON.stringify(fields)),
  });
  clients.set(handle, client);
  return {};
}

function toOutgoing({ channelId, content, malformed, clientMsgId, type, metadata, sender }) {
  return { channelId, content: malformed ? "\ud800" : content, clientMsgId, type, metadata, sender };
}

function toStart({ channelId, from, seq, epoch }) {
  if (from === "live") {
    return live(channelId);
  }
  return from === "start" ? fromStart(channelId) : after({ channelId, seq, epoch });
}

/** Appends the items of an iteration to into. Items before an error are kept. */
async function collect(items, into) {
  for await (const item of items) {
    into.push(item);
  }
}

/** Returns a list, and the option onState that appends each state to it. */
function recorder() {
  const states = [];
  const onState = ({ state, error, wait, addr }) =>
    states.push({ state, error: error && toError(error), waitMs: wait, addr });
  return { states, onState };
}

function subscribe(client, { sub: handle, starts }, { signal }) {
  const { states, onState } = recorder();
  // The command ends at once, so its signal is not the subscription's.
  signal.throwIfAborted();
  const sdk = client.subscribe(starts.map(toStart), { onState });
  subscriptions.set(handle, { sdk, states });
}

function connect(client, args, { signal }) {
  const { states, onState } = recorder();
  const { presence: handle, platform, deviceId, userIds, channelIds, loginToken, background, invisible } = args;
  signal.throwIfAborted();
  const options = { platform, deviceId, watch: userIds, watchChannels: channelIds, loginToken, background, invisible };
  presences.set(handle, { sdk: client.presence({ ...options, onState }), states });
}

function fromChannelPresence({ channelId, onlineCount, memberCount, online = new Map() }) {
  const byId = ([a], [b]) => (a < b ? -1 : 1);
  return { channelId, onlineCount, memberCount, online: [...online].sort(byId).map(([, user]) => user) };
}

function fromPresenceEvent(e) {
  return e.kind === "channel" ? { ...e, channel: fromChannelPresence(e.channel) } : e;
}

/** Appends events until there are count, the time limit ends, or the subscription ends. */
async function take(sub, { count = 1, timeoutMs }, signal, events) {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), timeoutMs ?? 2 ** 31 - 1);
  const aborted = () => limit.abort();
  signal.addEventListener("abort", aborted);
  try {
    while (events.length < count) {
      events.push(await sub.next(limit.signal));
    }
  } catch (err) {
    if (signal.aborted || err !== limit.signal.reason) {
      throw signal.aborted ? signal.reason : err;
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", aborted);
  }
}

/** The ops on a client. options has the call's signal and its own time limit. */
const ofClient = {
  signOut: (c, _, options) => c.signOut(options),
  send: (c, args, options) => {
    const { channelId, content, ...rest } = toOutgoing(args);
    return c.send(channelId, content, { ...rest, ...options });
  },
  sendBatch: async (c, args, options, result) => {
    const told = (results) => results.map(({ receipt, error }) => (error ? { error: toError(error) } : { receipt }));
    try {
      result.results = told(await c.sendBatch(args.messages.map(toOutgoing), options));
    } catch (err) {
      result.results = told(err.results);
      if (!(err instanceof ParleyError)) {
        throw err;
      }
      // The results already have a refusal of the whole call.
    }
  },
  edit: (c, { channelId, msgId, content, clientMsgId }, options) =>
    c.edit(channelId, msgId, content, { clientMsgId, ...options }),
  recall: (c, { channelId, msgId, clientMsgId }, options) => c.recall(channelId, msgId, { clientMsgId, ...options }),
  get: async (c, { channelId, msgId }, options) => {
    const { epoch, ...message } = await c.get(channelId, msgId, options);
    return { message, epoch };
  },
  history: (c, { channelId, afterSeq, beforeSeq, pageSize, limit }, options, result) => {
    result.messages = [];
    return collect(c.history(channelId, { afterSeq, beforeSeq, pageSize, limit, ...options }), result.messages);
  },
  channels: (c, { pageSize }, options, result) => {
    result.channels = [];
    return collect(c.channels({ pageSize, ...options }), result.channels);
  },
  members: (c, { channelId }, options, result) => {
    result.members = [];
    return collect(c.members(channelId, options), result.members);
  },
  createChannel: async (c, { channelId, membersOnly, members, idempotencyKey }, options) => ({
    channel: await c.createChannel(channelId, { membersOnly, members, idempotencyKey, ...options }),
  }),
  setMembersOnly: async (c, { channelId, membersOnly }, options) => ({
    channel: await c.setMembersOnly(channelId, membersOnly, options),
  }),
  deleteChannel: (c, { channelId }, options) => c.deleteChannel(channelId, options),
  addMembers: (c, { channelId, userIds }, options) => c.addMembers(channelId, userIds, options),
  removeMembers: (c, { channelId, userIds }, options) => c.removeMembers(channelId, userIds, options),
  markRead: (c, { channelId, seq }, options) => c.markRead(channelId, seq, options),
  typing: (c, { channelId }, options) => c.typing(channelId, options),
  getPresence: async (c, { userIds }, options) => ({ users: await c.getPresence(userIds, options) }),
  append: (c, args, options) => {
    const { content, clientMsgId, metadata, sender } = toOutgoing(args);
    const { title } = args;
    return c.session(args.sessionId).append(args.role, content, { clientMsgId, metadata, sender, title, ...options });
  },
  open: async (c, { sessionId, role, clientMsgId, message: handle }, options) => {
    const message = await c.session(sessionId).open(role, { clientMsgId, ...options });
    opened.set(handle, message);
    return message.receipt;
  },
  cancelMessage: (c, { sessionId, msgId }, options) => c.session(sessionId).cancel(msgId, options),
  sessions: (c, { userId, pageSize }, options, result) => {
    result.sessions = [];
    return collect(c.sessions({ userId, pageSize, ...options }), result.sessions);
  },
  renameSession: (c, { sessionId, title }, options) => c.session(sessionId).rename(title, options),
  deleteSession: (c, { sessionId }, options) => c.session(sessionId).delete(options),
  onlineUsers: (c, _, options, result) => {
    result.users = [];
    return collect(c.onlineUsers(options), result.users);
  },
  subscribe,
  connect,
};

const ofSubscription = {
  take: ({ sdk }, args, signal, result) => {
    result.events = [];
    return take(sdk, args, signal, result.events);
  },
  position: ({ sdk }, { channelId }) => ({ position: sdk.position(channelId) }),
  states: ({ states }) => ({ states: [...states] }),
  add: ({ sdk }, { starts }, signal) => sdk.add(starts.map(toStart), signal),
  remove: ({ sdk }, { channelIds }, signal) => sdk.remove(channelIds, signal),
  closeSub: ({ sdk }) => {
    sdk.close();
    return sdk.done;
  },
};

const ofPresence = {
  takePresence: async ({ sdk }, args, signal, result) => {
    const events = [];
    try {
      await take(sdk, args, signal, events);
    } finally {
      result.events = events.map(fromPresenceEvent);
    }
  },
  presenceStates: ({ states }) => ({ states: [...states] }),
  presenceInfo: ({ sdk: { loginToken, connectionId, lagging } }) => ({ loginToken, connectionId, lagging }),
  userPresence: ({ sdk }, { userId }) => ({ user: sdk.user(userId) }),
  channelPresence: ({ sdk }, { channelId }) => {
    const channel = sdk.channel(channelId);
    return { channel: channel && fromChannelPresence(channel) };
  },
  watch: ({ sdk }, { userIds }, signal) => sdk.watch(userIds, signal),
  unwatch: ({ sdk }, { userIds }, signal) => sdk.unwatch(userIds, signal),
  watchChannel: ({ sdk }, { channelId }, signal) => sdk.watchChannels(channelId, signal),
  unwatchChannel: ({ sdk }, { channelId }, signal) => sdk.unwatchChannels(channelId, signal),
  setBackground: ({ sdk }, { background }) => sdk.setBackground(background),
  closePresence: ({ sdk }) => {
    sdk.close();
    return sdk.done;
  },
};

const ofOpen = {
  writeText: (message, { content }) => message.write(content),
  ended: (message, _, signal) =>
    new Promise((resolve, reject) => {
      signal.addEventListener("abort", () => reject(signal.reason));
      const end = () => resolve({ error: toError(message.signal.reason) });
      message.signal.addEventListener("abort", end);
      if (message.ended) {
        end();
      }
    }),
  complete: (message, { content }, signal) => message.complete(content, { signal }),
  cancelOpen: (message, { content }, signal) => message.cancel(content, { signal }),
  failOpen: (message, { content }, signal) => message.fail(content, { signal }),
};

const others = {
  hello: () => ({ sdk: "ts", protocols: ["connect", "grpc-web"] }),
  newClient,
  closeClient: ({ client }) => find(clients, client).sdk.close(),
  tokenCalls: ({ client }) => ({ calls: find(clients, client).tokenCalls }),
  cancel: ({ call }) => underWay.get(call)?.abort(),
};

/** Starts a command. The answer includes what the work puts into result, even if it fails. */
function begin(op, args, signal, result) {
  if (Object.hasOwn(others, op)) {
    return others[op](args);
  }
  if (Object.hasOwn(ofClient, op)) {
    return ofClient[op](find(clients, args.client).sdk, args, { signal, timeout: args.deadlineMs }, result);
  }
  if (Object.hasOwn(ofSubscription, op)) {
    return ofSubscription[op](find(subscriptions, args.sub), args, signal, result);
  }
  if (Object.hasOwn(ofOpen, op)) {
    return ofOpen[op](find(opened, args.message), args, signal);
  }
  if (Object.hasOwn(ofPresence, op)) {
    return ofPresence[op](find(presences, args.presence), args, signal, result);
  }
  throw new AgentError(`no such op: ${op}`);
}

function toError(err) {
  const message = String(err?.message ?? err);
  if (err instanceof ParleyError) {
    const { reason, retryable, field, limit, retryAfter, requestId, positions, userIds, kick } = err;
    const code = codeToString(err.code);
    return {
      kind: "parley",
      message,
      code,
      reason,
      retryable,
      field,
      limit,
      retryAfterMs: retryAfter,
      requestId,
      positions,
      userIds,
      kick,
    };
  }
  if (err instanceof ClosedError) {
    return { kind: "closed", message };
  }
  if (err instanceof AgentError) {
    return { kind: "agent", message };
  }
  const kind = { AbortError: "canceled", TimeoutError: "deadline" }[err?.name] ?? "other";
  return { kind, message, last: err instanceof InterruptedError && err.cause ? toError(err.cause) : undefined };
}

function answer(id, result, error) {
  process.stdout.write(`${JSON.stringify({ id, result, error })}\n`);
}

async function handle(line) {
  let command;
  try {
    command = JSON.parse(line);
  } catch (err) {
    answer(0, undefined, { kind: "agent", message: `unreadable line: ${err.message}` });
    return;
  }
  const { id, op, args = {} } = command;
  const controller = new AbortController();
  underWay.set(id, controller);
  let result = {};
  let error;
  try {
    result = (await begin(op, args, controller.signal, result)) ?? result;
  } catch (err) {
    error = toError(err);
  }
  underWay.delete(id);
  answer(id, error === undefined || Object.keys(result).length > 0 ? result : undefined, error);
}

const lines = createInterface({ input: process.stdin });
lines.on("line", handle);
lines.on("close", () => {
  for (const { sdk } of presences.values()) {
    sdk.close();
  }
  for (const { sdk } of subscriptions.values()) {
    sdk.close();
  }
  for (const { sdk } of clients.values()) {
    sdk.close();
  }
});
