import { ServerService } from "@parleyhq/api/parley/v1/server_pb.js";
import { Client } from "@parleyhq/sdk";
import { browserClock } from "./clock";
import { answerLimit, Liveness } from "./liveness";
import { callLimit, type Server, serviceClient } from "./service";

/**
 * sdkClient returns an SDK client, which is not connected yet, and a function that closes it. Its
 * calls have no time limit: a page shows pending calls, and an hour offline must not turn them into
 * failures. Its streams end when the server stops answering, or the browser goes offline; the SDK
 * then opens new ones.
 */
export function sdkClient(server: Server): { client: Client; close: () => void } {
  const { address, token } = server;
  const liveness = new Liveness({
    fetch: (input, init) => fetch(input, init),
    clock: browserClock,
    probe: (probing) =>
      serviceClient(ServerService, server, probing).getServerInfo({}, { timeoutMs: answerLimit + 500 }),
    hidden: () => document.hidden,
  });
  const client = new Client(address, { token, callTimeout: 0, fetch: liveness.fetch });
  const listening = new AbortController();
  const { signal } = listening;
  addEventListener("offline", () => liveness.offline(), { signal });
  document.addEventListener("visibilitychange", () => liveness.check(), { signal });
  return {
    client,
    close: () => {
      listening.abort();
      liveness.close();
      client.close();
    },
  };
}

/**
 * signOut revokes the server's token, and with it all other tokens of the same login. It tries for
 * callLimit, and resolves too if the token was revoked before.
 */
export async function signOut({ address, token }: Server): Promise<void> {
  const client = new Client(address, { token, callTimeout: callLimit });
  try {
    await client.signOut();
  } finally {
    client.close();
  }
}
