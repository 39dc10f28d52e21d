import { failure } from "../../connection/failure";
import type { Outcome } from "./types";

// The maximum number of ids per call.
const idsPerCall = 1_000;

/** inCalls makes a call for at most 1,000 ids at a time and adds up the outcomes. */
export async function inCalls(
  ids: readonly string[],
  call: (ids: readonly string[]) => Promise<Outcome>,
): Promise<Outcome> {
  let [done, failed] = [0, 0];
  const problems = new Set<string>();
  for (let i = 0; i < ids.length; i += idsPerCall) {
    const outcome = await call(ids.slice(i, i + idsPerCall));
    done += outcome.done;
    failed += outcome.failed;
    for (const problem of outcome.problems) problems.add(problem);
  }
  return { done, failed, problems: [...problems] };
}

/** outcomeText says for how many messages a call succeeded, for example `Cancelled 2 messages.` */
export function outcomeText(verb: string, { done, failed, problems }: Outcome): string {
  const messages = (n: number) => (n === 1 ? "1 message" : `${n} messages`);
  const text = done > 0 || failed === 0 ? `${verb} ${messages(done)}.` : "";
  if (failed === 0) return text;
  return `${text} Not ${verb.toLowerCase()}: ${messages(failed)} (${problems.join("; ")}).`.trim();
}

/**
 * producing replaces the error of a call that requires the capability to produce by one that says
 * so: an operator's token may lack it.
 */
export async function producing<T>(topic: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (cause) {
    if (failure(cause).remedy !== "capability") throw cause;
    throw new Error(
      `The token does not allow this: it requires the capability queue:${topic} with the action produce.`,
    );
  }
}
