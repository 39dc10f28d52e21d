import type { DescService } from "@bufbuild/protobuf";
import { type Client, createClient, type Interceptor } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";

/** Server is the address of a server and the token to call it with. */
export interface Server {
  readonly address: string;
  readonly token: string;
}

/** callLimit is the time limit of a call of serviceClient, in milliseconds. */
export const callLimit = 8_000;

/**
 * serviceClient returns the generated client of a service that the SDK does not cover. A call makes
 * one attempt and fails after callLimit. failure converts its errors. fetch replaces the browser's.
 */
export function serviceClient<S extends DescService>(
  service: S,
  { address, token }: Server,
  fetch?: typeof globalThis.fetch,
): Client<S> {
  const authorize: Interceptor = (next) => (request) => {
    request.header.set("authorization", `Bearer ${token}`);
    return next(request);
  };
  const transport = createConnectTransport({
    baseUrl: address,
    useBinaryFormat: true,
    defaultTimeoutMs: callLimit,
    interceptors: [authorize],
    ...(fetch && { fetch }),
  });
  return createClient(service, transport);
}
