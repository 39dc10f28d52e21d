import { onAbort } from "./abort.js";

// On some platforms the monotonic clock and the timers stop while the machine sleeps. The wall
// clock continues, but can be set. So a forward step of the wall clock by more than stepMs counts
// as sleep.
const stepMs = 1_000;
// sliceMs is the maximum time between two checks of the clock. It bounds the delay after which
// sleep is detected.
const sliceMs = 1_000;

// An alarm that is more than lateMs late, because the machine slept or the process was stopped,
// waits for another graceMs. Otherwise a stream would count as dead although its frames are in a
// buffer.
const lateMs = 50;
const graceMs = 100;

let skew = Date.now() - performance.now();
let slept = 0;

/**
 * now returns the milliseconds since an arbitrary start, including time in which the machine slept.
 * It never decreases.
 */
export function now(): number {
  const running = performance.now();
  const offset = Date.now() - running;
  if (Math.abs(offset - skew) > stepMs) {
    slept += Math.max(0, offset - skew);
    skew = offset;
  }
  return running + slept;
}

/**
 * onWake calls wake whenever the platform reports that the network may work again: on the event
 * `online`, and when the page becomes visible. Platforms without these events never call it. The
 * returned function removes the listeners.
 */
export function onWake(wake: () => void): () => void {
  const page = typeof document === "undefined" ? undefined : document;
  const seen = () => {
    if (page?.visibilityState === "visible") {
      wake();
    }
  };
  // Node has neither event target. Deno and workers have only the first.
  globalThis.addEventListener?.("online", wake);
  page?.addEventListener("visibilitychange", seen);
  return () => {
    globalThis.removeEventListener?.("online", wake);
    page?.removeEventListener("visibilitychange", seen);
  };
}

/**
 * Alarm calls its callback once when its time is over according to now(), also if the machine
 * slept. Setting it again is cheap. It does not keep a Node process alive.
 */
export class Alarm {
  readonly #ring: () => void;
  readonly #unwatch: () => void;
  #due = Number.POSITIVE_INFINITY;
  #graced = false;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #timerDue = Number.POSITIVE_INFINITY;

  constructor(ring: () => void) {
    this.#ring = ring;
    this.#unwatch = onWake(() => this.#check());
  }

  /** set schedules the callback in ms milliseconds and replaces the earlier time. */
  set(ms: number): void {
    this.#due = now() + ms;
    this.#graced = false;
    const slice = now() + Math.min(ms, sliceMs);
    if (this.#timer === undefined || this.#timerDue > slice) {
      this.#arm(slice);
    }
  }

  /** pause stops the alarm until it is set again. */
  pause(): void {
    this.#due = Number.POSITIVE_INFINITY;
  }

  /** close stops the alarm permanently and removes its listeners. */
  close(): void {
    this.pause();
    this.#unwatch();
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #arm(at: number): void {
    clearTimeout(this.#timer);
    this.#timerDue = at;
    this.#timer = setTimeout(
      () => {
        this.#timer = undefined;
        this.#check();
      },
      Math.max(0, at - now()),
    );
    unref(this.#timer);
  }

  #check(): void {
    const left = this.#due - now();
    if (left === Number.POSITIVE_INFINITY) {
      return;
    }
    if (left > 0) {
      this.#arm(now() + Math.min(left, sliceMs));
      return;
    }
    if (left < -lateMs && !this.#graced) {
      this.#graced = true;
      this.#due = now() + graceMs;
      this.#arm(this.#due);
      return;
    }
    this.pause();
    this.#ring();
  }
}

/** unref makes a timer not keep a Node process alive. */
export function unref(timer: unknown): void {
  (timer as { unref?: () => void }).unref?.();
}

/** Wait is a time to wait, in milliseconds. */
export interface Wait {
  /** retryAfter is the minimum that the server requires. It is never shortened. */
  retryAfter: number;
  /** backoff is the time that the client adds. */
  backoff: number;
}

/** total returns the whole wait, in milliseconds. */
export function total(wait: Wait): number {
  return wait.retryAfter + wait.backoff;
}

/**
 * sleep resolves after the wait. It rejects with the signal's reason when the signal is aborted.
 * When the platform reports that the network may work again (see onWake), the rest of wait.backoff
 * is shortened to at most wakeDelay().
 */
export function sleep(wait: Wait, signal: AbortSignal, wakeDelay: () => number): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const soonest = now() + wait.retryAfter;
    let due = soonest + wait.backoff;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const check = () => {
      clearTimeout(timer);
      const left = due - now();
      if (left <= 0) {
        end();
        resolve();
        return;
      }
      timer = setTimeout(check, Math.min(left, sliceMs));
    };
    const unwatch = onWake(() => {
      due = Math.min(due, Math.max(soonest, now()) + wakeDelay());
      check();
    });
    const forget = onAbort(signal, () => {
      end();
      reject(signal.reason);
    });
    const end = () => {
      clearTimeout(timer);
      unwatch();
      forget();
    };
    check();
  });
}
