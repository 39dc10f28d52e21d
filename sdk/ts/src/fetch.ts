/**
 * abortable gives a fetch whose answers can be aborted while their bodies are read. With Node's own that is true only
 * until the garbage collector has taken the request, which nothing holds on to once there is an answer: a stream that
 * is left then goes on for ever, and keeps the process alive.
 */
export function abortable(fetch: typeof globalThis.fetch): typeof globalThis.fetch {
  return async (input, init) => {
    const response = await fetch(input, init);
    const signal = init?.signal;
    if (!signal || response.body === null) {
      return response;
    }
    return new Response(response.body.pipeThrough(new TransformStream(), { signal }), response);
  };
}
