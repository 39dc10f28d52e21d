import type { MessageInitShape } from "@bufbuild/protobuf";
import type { UpdateSubscriptionRequestSchema } from "@parleyhq/api/parley/v1/message_pb.js";
import { link } from "./abort.js";
import type { Channel } from "./channel.js";
import { texts } from "./check.js";
import type { Core } from "./core.js";
import type { ParleyError } from "./error.js";
import { checkStarts, type Start } from "./start.js";
import { resubscribe, type Stream } from "./stream.js";

type Change = MessageInitShape<typeof UpdateSubscriptionRequestSchema>;

/** add follows more channels: see Subscription.add. */
export async function add(core: Core, starts: readonly Start[], signal: AbortSignal | undefined): Promise<void> {
  checkStarts(starts);
  await inTurn(core, signal, async (scope) => {
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

/** settle makes channels that were added definite, or takes them back. */
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
    if (!ch.onStream && !ch.lost && current !== undefined && current !== stream && current.session !== "") {
      // The stream that took the channel has gone, and the one after it began without.
      current.leave(resubscribe());
    }
  }
}

/** remove follows channels no longer: see Subscription.remove. */
export async function remove(core: Core, ids: readonly string[], signal: AbortSignal | undefined): Promise<void> {
  texts("channels", ids);
  await inTurn(core, signal, async (scope) => {
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
      stream?.removed.push(...removed);
    }
    const refusal = await update(core, stream, change, scope);
    if (refusal !== undefined) {
      throw refusal;
    }
  });
}

/** catchUp asks for what was changed while the stream was being made. It does not reject. */
export async function catchUp(core: Core, stream: Stream): Promise<void> {
  try {
    await inTurn(core, stream.signal, async (scope) => {
      // A channel that was removed and added again is only added: that begins it anew.
      const removed = stream.removed.filter((id) => core.roster.get(id) === undefined);
      const change = changeRequest(stream, core.roster.late(), removed);
      stream.removed = [];
      const refusal = await update(core, stream, change, scope);
      if (refusal !== undefined) {
        stream.leave(refusal);
      }
    });
  } catch {
    // The stream or the subscription has ended; the next stream begins with all channels.
  }
}

/**
 * changeRequest makes the request that changes the live stream, or none if there is no live stream or nothing to
 * change.
 */
function changeRequest(
  stream: Stream | undefined,
  added: readonly Channel[],
  removed: readonly string[],
): Change | undefined {
  if (stream === undefined || stream.session === "" || added.length + removed.length === 0) {
    return undefined;
  }
  for (const ch of added) {
    ch.onStream = true;
    ch.begun = false;
  }
  return { sessionId: stream.session, add: added.map((ch) => ch.request()), remove: [...removed] };
}

/**
 * update makes the request, and gives its refusal. It is tried once: where it is not known to have arrived, or the
 * stream is no more, a new stream with all channels is what makes it sure.
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
  if (error === undefined || error.retryable || error.reason === "SESSION_NOT_FOUND") {
    if (error !== undefined) {
      stream?.leave(resubscribe());
    }
    return undefined;
  }
  return error;
}

/**
 * inTurn does work when no other change is under way. It rejects with the signal's reason, or with what ended the
 * subscription, if either comes before its turn.
 */
async function inTurn(
  core: Core,
  signal: AbortSignal | undefined,
  work: (signal: AbortSignal) => Promise<void>,
): Promise<void> {
  const scope = new AbortController();
  const unlink = [link(scope, signal), link(scope, core.signal)];
  try {
    const release = await core.turn.take(scope.signal);
    try {
      await work(scope.signal);
    } finally {
      release();
    }
  } finally {
    for (const end of unlink) {
      end();
    }
  }
}
