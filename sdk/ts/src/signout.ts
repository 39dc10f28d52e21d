import type { Caller } from "./caller.js";
import { ParleyError } from "./error.js";
import type { CallOptions } from "./options.js";

export async function signOut(caller: Caller, options: CallOptions): Promise<void> {
  try {
    await caller.retry("SignOut", options, (rpc, opts) => rpc.signOut({}, opts));
  } catch (err) {
    // The token is revoked already, by an attempt whose answer was lost or by anybody else.
    if (!(err instanceof ParleyError) || err.reason !== "TOKEN_REVOKED") {
      throw err;
    }
  }
}
