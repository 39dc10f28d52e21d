import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code } from "@connectrpc/connect";
import type { UpdateSubscriptionRequestSchema } from "@parleyhq/api/parley/v1/subscription_pb.js";
import type { Channel } from "./channel.js";
import { texts } from "./check.js";
import type { Core } from "./core.js";
import type { ParleyError } from "./error.js";
import { inTurn } from "./queue.js";
import { checkStarts, type Start } from "./start.js";
import { type Stream, streamError } from "./stream.js";

type Change = MessageInitShape<typeof UpdateSubscriptionRequestSchema>;

/**
 * resubscribe returns the error with which a subscription leaves a stream whose channels or token
 * may differ from the subscription's.
 */
export function resubscribe(): ParleyError {
  return streamError(Code.Aborted, "a change of the stream may not have arrived");
}

/** add implements Subscription.add. */
export async function add(core: Core, starts: readonly Start[], signal: AbortSignal | undefined): Promise<void> {
  checkStarts(starts);
  await inTurn(core.turn, [signal, core.signal], async (scope) => {
    const added = starts.map((start) => core.roster.insert(start)).filter((ch) => ch !== undefined);
    const stream = core.stream;
    const change = changeRequest(stream, added, []);
    for (const ch of added) {
      ch.tentative = change !== undefined;
    }
    const refusal = await update(core, stream, change, scope);
    settle(core, stream, added, refusal !== undefined);
    if (refusal !== undefined) {
      throw refusal;
    }
  });
}

/** settle confirms added channels, or removes them if they were refused. */
function settle(core: Core, stream: Stream | undefined, added: readonly Channel[], refused: boolean): void {
  for (const ch of added) {
    if (refused) {
      core.roster.delete(ch.id);
      if (ch.replaced !== undefined) {
        core.roster.put(ch.replaced);
      }
      continue;
    }
    ch.tentative = false;
    ch.replaced = undefined;
    const current = core.stream;
    if (!ch.onStream && !ch.lost && current !== undefined && current !== stream && current.id !== "") {
      // The stream that accepted the channel has ended, and the next one started without it.
      current.leave(resubscribe());
    }
  }
}

/** remove implements Subscription.remove. */
export async function remove(core: Core, ids: readonly string[], signal: AbortSignal | undefined): Promise<void> {
  texts("channels", ids);
  await inTurn(core.turn, [signal, core.signal], async (scope) => {
    const removed: string[] = [];
    for (const id of ids) {
      if (core.roster.get(id)?.onStream) {
        removed.push(id);
      }
      core.roster.delete(id);
    }
    const stream = core.stream;
    const change = changeRequest(stream, [], removed);
    if (change === undefined) {
      core.removed.push(...removed);
    }
    const refusal = await update(core, stream, change, scope);
    if (refusal !== undefined) {
      throw refusal;
    }
  });
}

/** renewToken implements Subscription.renewToken. */
export async function renewToken(core: Core, signal: AbortSignal | undefined): Promise<void> {
  await inTurn(core.turn, [signal, core.signal], async (scope) => {
    const { before, now } = await core.caller.tokens.renew(scope);
    if (before === now) {
      return;
    }
    core.outdated = before; // for a stream that is opening, maybe with this token
    const stream = core.stream;
    if (stream === undefined || stream.id === "" || stream.token === now) {
      return;
    }
    if (core.carriesPresence) {
      stream.leave(resubscribe());
      return;
    }
    const refusal = await update(core, stream, { streamId: stream.id, renewToken: true }, scope);
    if (refusal !== undefined) {
      throw refusal;
    }
    stream.token = now;
  });
}

/** catchUp sends the changes that were made before the stream's first frame. It never rejects. */
export async function catchUp(core: Core, stream: Stream): Promise<void> {
  try {
    await inTurn(core.turn, [stream.signal, core.signal], async (scope) => {
      // Adding a channel starts it again, so one that was removed and added again is only added.
      const removed = core.removed.filter((id) => core.roster.get(id) === undefined);
      const change = changeRequest(stream, core.roster.late(), removed);
      core.removed = [];
      const refusal = await update(core, stream, change, scope);
      if (refusal !== undefined) {
        stream.leave(refusal);
      }
    });
  } catch {
    // The stream or the subscription has ended. The next stream requests all channels.
  }
}

/**
 * changeRequest returns the request that changes the live stream, and marks the added channels as
 * on it. It returns undefined if there is no live stream or no change.
 */
function changeRequest(
  stream: Stream | undefined,
  added: readonly Channel[],
  removed: readonly string[],
): Change | undefined {
  if (stream === undefined || stream.id === "" || added.length + removed.length === 0) {
    return undefined;
  }
  for (const ch of added) {
    ch.onStream = true;
    ch.hasState = false;
  }
  return { streamId: stream.id, add: added.map((ch) => ch.request()), remove: [...removed] };
}

/**
 * update sends the change and returns the error if the server refused it. It makes one attempt. If
 * the outcome is unknown, or the stream has ended, a new stream with all channels applies the
 * change.
 */
async function update(
  core: Core,
  stream: Stream | undefined,
  change: Change | undefined,
  signal: AbortSignal,
): Promise<ParleyError | undefined> {
  if (change === undefined) {
    return undefined;
  }
  const { caller } = core;
  const { error } = await caller.call(signal, caller.attemptTimeout, (rpc, options) =>
    rpc.updateSubscription(change, options),
  );
  if (error === undefined || error.retryable || error.reason === "STREAM_NOT_FOUND") {
    if (error !== undefined) {
      stream?.leave(resubscribe());
    }
    return undefined;
  }
  return error;
}
