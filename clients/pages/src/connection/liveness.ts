import { Code, ConnectError } from "@connectrpc/connect";
import type { Clock } from "./clock";

/** quietLimit is the silence in milliseconds after which a visible page asks the server. */
export const quietLimit = 3_500;

/**
 * answerLimit is the time in milliseconds that a call may wait while the server sends nothing at
 * all.
 */
export const answerLimit = 4_000;

/** A timer that is later than this many milliseconds was stopped: the machine slept. */
const late = 1_000;

type Fetch = typeof globalThis.fetch;

/** LivenessOptions are what a Liveness uses. Tests replace all of it. */
export interface LivenessOptions {
  readonly fetch: Fetch;
  readonly clock: Clock;
  /** Makes one short call of the server with the given fetch. It may reject. */
  readonly probe: (fetch: Fetch) => Promise<unknown>;
  /** Reports whether the page is hidden. A hidden page does not probe. */
  readonly hidden: () => boolean;
}

/**
 * Liveness ends the streams of a server that no longer answers, so that the owner of a stream opens
 * a new one. The heartbeats of a stream can be 15 s apart: on their own they would let a page show
 * "online" for more than half a minute after the server froze.
 *
 * All calls and streams of one server use its fetch. While a stream is open, Liveness probes the
 * server after quietLimit without a byte, and after a call that failed without an answer. If a call
 * or a probe is unanswered for answerLimit while nothing else arrives either, or a probe fails, it
 * ends the streams with an error.
 */
export class Liveness {
  readonly #options: LivenessOptions;
  readonly #streams = new Set<(why: ConnectError) => void>();
  readonly #calls = new Set<{ readonly began: number }>();
  #heardAt = 0;
  #probing = false;
  #closed = false;
  #cancel = () => {};

  constructor(options: LivenessOptions) {
    this.#options = options;
  }

  /** The fetch for all calls of the server. */
  readonly fetch: Fetch = (input, init) => this.#fetch(input, init, false);

  /** Checks the server now if it has been quiet. Call it when the page becomes visible. */
  check(): void {
    this.#check();
  }

  /** Ends the streams at once: the browser has no network. */
  offline(): void {
    this.#end(new ConnectError("the browser is offline", Code.Unavailable));
  }

  /** Stops all checks. */
  close(): void {
    this.#closed = true;
    this.#cancel();
  }

  async #fetch(input: RequestInfo | URL, init: RequestInit | undefined, probe: boolean): Promise<Response> {
    const call = { began: this.#options.clock.now() };
    const stream = isStream(init);
    if (!stream) this.#calls.add(call);
    this.#check();
    try {
      const response = await this.#options.fetch(input, init);
      this.#heard();
      return stream && response.body ? new Response(this.#read(response.body), response) : response;
    } catch (error) {
      // Any other error is an abort by the caller.
      if (error instanceof TypeError) this.#failed(probe);
      throw error;
    } finally {
      this.#calls.delete(call);
      this.#check();
    }
  }

  // Returns a stream's body with the same content, which reports each chunk and can be ended.
  #read(body: ReadableStream<Uint8Array<ArrayBuffer>>): ReadableStream<Uint8Array<ArrayBuffer>> {
    const reader = body.getReader();
    let cut = (_: ConnectError) => {};
    const done = () => this.#streams.delete(cut);
    return new ReadableStream<Uint8Array<ArrayBuffer>>({
      start: (controller) => {
        cut = (why) => {
          controller.error(why);
          reader.cancel(why).catch(() => {});
        };
        this.#streams.add(cut);
        this.#check();
      },
      pull: async (controller) => {
        try {
          const { value, done: last } = await reader.read();
          this.#heard();
          if (!last) {
            controller.enqueue(value);
            return;
          }
          done();
          controller.close();
        } catch (error) {
          done();
          throw error;
        }
      },
      cancel: (reason) => {
        done();
        return reader.cancel(reason);
      },
    });
  }

  #heard(): void {
    this.#heardAt = this.#options.clock.now();
  }

  #failed(probe: boolean): void {
    if (probe) this.#end(new ConnectError("the server can't be reached", Code.Unavailable));
    else if (this.#streams.size > 0) void this.#probe();
  }

  async #probe(): Promise<void> {
    if (this.#probing || this.#closed) return;
    this.#probing = true;
    try {
      await this.#options.probe((input, init) => this.#fetch(input, init, true));
    } catch {
      // An answer with an error is an answer. #fetch handles its absence.
    } finally {
      this.#probing = false;
    }
  }

  #end(why: ConnectError): void {
    const streams = [...this.#streams];
    this.#streams.clear();
    for (const cut of streams) cut(why);
  }

  // Ends the streams or probes if one of these is due, and otherwise sets the timer.
  #check(): void {
    this.#cancel();
    if (this.#closed || this.#streams.size === 0) return;
    const now = this.#options.clock.now();
    // A call that began before the last byte may be slow, or stuck in a connection of its own.
    const unanswered = [...this.#calls].find(({ began }) => began >= this.#heardAt);
    const due = unanswered ? unanswered.began + answerLimit : this.#heardAt + quietLimit;
    if (now < due) {
      this.#arm(due - now);
    } else if (unanswered) {
      this.#end(new ConnectError("the server does not answer", Code.DeadlineExceeded));
    } else if (!this.#options.hidden()) {
      void this.#probe();
    }
  }

  #arm(wait: number): void {
    const due = this.#options.clock.now() + wait;
    this.#cancel = this.#options.clock.after(wait, () => {
      // The answers that arrived while the machine slept are not read yet.
      if (this.#options.clock.now() - due > late) this.#heard();
      this.#check();
    });
  }
}

function isStream(init: RequestInit | undefined): boolean {
  return new Headers(init?.headers).get("content-type")?.startsWith("application/connect+") ?? false;
}
