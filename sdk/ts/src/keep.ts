import type { Caller } from "./caller.js";
import { sleep, total } from "./clock.js";
import { nodeFailed, type ParleyError } from "./error.js";
import type { StateChange } from "./event.js";
import { Pacer, type StreamEnd } from "./pacer.js";

/** Line opens the streams of a subscription or of a presence. */
export interface Line {
  /** The name for the log: "subscription" or "presence". */
  readonly name: string;
  /** follow opens a stream and reads it until it ends. It does not reject. */
  follow(): Promise<StreamEnd>;
  /**
   * recover reports whether to open the next stream at once, because it differs from the one that
   * ended.
   */
  recover(end: StreamEnd): Promise<boolean>;
  setState(change: StateChange): void;
}

/**
 * keepOpen opens one stream after another. It returns the final error of a stream, and rejects with
 * the signal's reason when the signal is aborted.
 */
export async function keepOpen(caller: Caller, line: Line, signal: AbortSignal): Promise<ParleyError | undefined> {
  const pacer = new Pacer(caller);
  for (;;) {
    signal.throwIfAborted();
    line.setState({ state: "connecting" });
    const end = await line.follow();
    signal.throwIfAborted();
    if (await line.recover(end)) {
      continue;
    }
    recordEnd(caller, end);
    const wait = pacer.next(end);
    if (wait === undefined) {
      return end.error;
    }
    const addr = end.node?.addr;
    caller.log("warn", "reconnecting", { stream: line.name, addr, wait: total(wait), error: end.error });
    line.setState({ state: "waiting", error: end.error, wait: total(wait), addr });
    await sleep(wait, signal, () => caller.waits.wakeDelay());
  }
}

/** recordEnd records whether the stream's node failed, and sets end.failsOver. */
function recordEnd(caller: Caller, end: StreamEnd): void {
  if (end.node === undefined) {
    return;
  }
  if (end.advice !== undefined || nodeFailed(end.error)) {
    caller.endpoints.fail(end.node);
  }
  end.failsOver = caller.endpoints.hasOther(end.node);
}
