import { Code, type CallOptions as RpcOptions } from "@connectrpc/connect";
import type { ChannelPresence, WatchChannelResponse } from "@parleyhq/api/parley/v1/presence_pb.js";
import { link } from "./abort.js";
import { texts } from "./check.js";
import type { Rpc } from "./endpoint.js";
import { type ParleyError, type Reason, toError } from "./error.js";
import type { PresenceCore, StreamPart } from "./presencecore.js";
import { inTurn } from "./queue.js";
import { streamError } from "./stream.js";
import type { Kind } from "./watched.js";

/** The maximum number of users that one request adds or removes. */
const maxUsers = 500;

/** The number of attempts of a change that the node of the stream may refuse as full. */
const maxFull = 5;

/** The retryable reasons with which a change may have been made. */
const uncertainReasons: readonly Reason[] = ["OUTCOME_UNKNOWN", "DEADLINE_EXCEEDED", "INTERNAL"];

/** rewatch returns the error with which a presence leaves a stream whose states are incomplete. */
export function rewatch(): ParleyError {
  return streamError(Code.Aborted, "the stream's states may be incomplete");
}

/** watch implements Presence.watch and Presence.watchChannels. */
export async function watch(
  core: PresenceCore,
  kind: Kind,
  ids: readonly string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  texts(kind, ids);
  await inTurn(core.turn, [signal, core.lifetime.signal], async (scope) => {
    const list = core.watched[kind];
    const added = list.add(ids, core.live);
    try {
      const refusal = await apply(core, scope, kind === "channels" ? added : []);
      if (refusal !== undefined) {
        throw refusal;
      }
      list.confirm(added);
      core.watched.regain(kind, added);
    } catch (err) {
      list.delete(added);
      throw err;
    } finally {
      // The next stream may have begun without the ids, or the server has a part of them.
      core.sync();
    }
  });
}

/** unwatch implements Presence.unwatch and Presence.unwatchChannels. */
export async function unwatch(
  core: PresenceCore,
  kind: Kind,
  ids: readonly string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  texts(kind, ids);
  await inTurn(core.turn, [signal, core.lifetime.signal], async (scope) => {
    core.watched[kind].delete(ids);
    try {
      const refusal = await apply(core, scope);
      if (refusal !== undefined) {
        throw refusal;
      }
    } finally {
      core.sync();
    }
  });
}

/**
 * apply sends what differs between the presence and the live stream. While the stream lives it
 * repeats what failed with a retryable error and was not made. It returns the error if the server
 * refused a change, and rejects with the signal's reason. If the stream ends meanwhile, or there is
 * none, it returns undefined: the next stream requests everything. A channel that the server
 * refuses is lost unless it is one of asked, which a call is about to watch.
 */
export async function apply(
  core: PresenceCore,
  signal: AbortSignal,
  asked: readonly string[] = [],
): Promise<ParleyError | undefined> {
  const { part } = core;
  if (part === undefined || !part.live) {
    return undefined;
  }
  const scope = new AbortController();
  const unlink = [link(scope, signal), link(scope, part.stream.signal)];
  try {
    await sendBackground(core, part, scope.signal);
    await sendUsers(core, part, scope.signal);
    await sendChannels(core, part, scope.signal, asked);
    return undefined;
  } catch (err) {
    core.lifetime.signal.throwIfAborted();
    if (signal.aborted) {
      throw err;
    }
    if (part.stream.signal.aborted) {
      return undefined;
    }
    const error = toError(err);
    if (error.reason !== "STREAM_NOT_FOUND") {
      return error;
    }
    part.stream.leave(rewatch());
    return undefined;
  } finally {
    for (const end of unlink) {
      end();
    }
  }
}

/**
 * call makes a call of unlimited time, which is part of the stream and not of the program. If it is
 * not known whether the change was made, it leaves the stream: a repeat could overtake the first
 * attempt, which would then undo a later change. NODE_FULL is about the node of the stream. After
 * maxFull attempts call rejects with it.
 */
async function call<T>(
  core: PresenceCore,
  name: string,
  part: StreamPart,
  signal: AbortSignal,
  attempt: (rpc: Rpc, options: RpcOptions) => Promise<T>,
): Promise<T> {
  const scope = new AbortController();
  const unlink = link(scope, signal);
  let refusals = 0;
  let full: ParleyError | undefined;
  try {
    return await core.caller.retry(name, { signal: scope.signal, timeout: 0 }, async (rpc, options) => {
      try {
        return await attempt(rpc, options);
      } catch (err) {
        const error = toError(err);
        if (!core.lifetime.signal.aborted && uncertain(error)) {
          part.stream.leave(rewatch());
        }
        if (error.reason !== "NODE_FULL") {
          throw err;
        }
        if (++refusals === maxFull) {
          full = error;
          scope.abort(error);
        }
        throw error.with({ ofStream: true });
      }
    });
  } catch (err) {
    throw full ?? err;
  } finally {
    unlink();
  }
}

/** uncertain reports whether a change that failed may have been made. */
function uncertain(error: ParleyError): boolean {
  const answered = !error.unanswered && error.reason !== "";
  return error.retryable && (!answered || uncertainReasons.includes(error.reason));
}

async function sendBackground(core: PresenceCore, part: StreamPart, signal: AbortSignal): Promise<void> {
  if (core.background === part.background || core.invisible) {
    return;
  }
  let { background } = core;
  await call(core, "SetBackground", part, signal, (rpc, options) => {
    // A repeat sends the newest value.
    background = core.background;
    return rpc.setBackground({ streamId: part.stream.id, background }, options);
  });
  part.background = background;
}

async function sendUsers(core: PresenceCore, part: StreamPart, signal: AbortSignal): Promise<void> {
  const { users } = core.watched;
  const adding = users.ids.filter((id) => !part.users.has(id));
  const removing = [...part.users].filter((id) => users.get(id) === undefined);
  while (adding.length > 0 || removing.length > 0) {
    const add = adding.splice(0, maxUsers);
    const remove = removing.splice(0, maxUsers);
    const request = { streamId: part.stream.id, add, remove };
    const res = await call(core, "UpdateWatch", part, signal, (rpc, options) => rpc.updateWatch(request, options));
    for (const id of remove) {
      part.users.delete(id);
    }
    for (const id of add) {
      part.users.add(id);
    }
    if (core.part === part) {
      core.watched.accept({ users: res.presence }, part.channels);
    }
  }
}

async function sendChannels(
  core: PresenceCore,
  part: StreamPart,
  signal: AbortSignal,
  asked: readonly string[],
): Promise<void> {
  const { channels } = core.watched;
  const streamId = part.stream.id;
  for (const channelId of [...part.channels].filter((id) => channels.get(id) === undefined)) {
    const request = { streamId, channelId };
    await call(core, "UnwatchChannel", part, signal, (rpc, options) => rpc.unwatchChannel(request, options));
    part.channels.delete(channelId);
  }
  for (const channelId of channels.ids.filter((id) => !part.channels.has(id))) {
    const request = { streamId, channelId };
    let res: WatchChannelResponse;
    try {
      res = await call(core, "WatchChannel", part, signal, (rpc, options) => rpc.watchChannel(request, options));
    } catch (err) {
      const error = toError(err);
      if (signal.aborted || error.reason === "STREAM_NOT_FOUND") {
        throw err;
      }
      if (!asked.includes(channelId)) {
        channels.confirm([channelId]);
        core.watched.lose("channels", [channelId], error);
        continue;
      }
      if (error.reason === "NODE_FULL" && core.caller.endpoints.hasSpare(part.stream.node)) {
        // The next stream begins on another node, with the channel.
        part.stream.leave(error);
      }
      throw err;
    }
    part.channels.add(channelId);
    if (core.part === part && res.presence === undefined) {
      core.watched.settle(channelId, part.channels);
    } else if (core.part === part) {
      core.watched.accept({ channels: [res.presence as ChannelPresence] }, part.channels);
    }
  }
}
