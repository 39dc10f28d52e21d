import { Client } from "@parleyhq/sdk";
import type { Server } from "./service";

/**
 * sdkClient returns an SDK client, which is not connected yet. Its calls have no time limit: a page
 * shows pending calls, and an hour offline must not turn them into failures.
 */
export function sdkClient({ address, token }: Server): Client {
  return new Client(address, { token, callTimeout: 0 });
}
