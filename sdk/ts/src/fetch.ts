/**
 * abortable returns a fetch whose responses can be aborted while their bodies are read. Node's own
 * fetch stops observing the signal when the request is garbage-collected, which can happen once
 * there is a response. A stream that the subscription left would then run forever and keep the
 * process alive.
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
