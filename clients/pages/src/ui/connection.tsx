import type { ReadonlySignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";

/** What is shown of a connection: why it is not there, and until when it waits, in milliseconds since 1970. */
interface Connection {
  state: "connecting" | "live" | "waiting" | "ended";
  reason: string;
  until: number;
}

/** How the connection stands, in a few words; while it waits, with the seconds left and a way to cut the wait short. */
export function ConnectionState({ connection }: { connection: ReadonlySignal<Connection> }) {
  const { state, reason, until } = connection.value;
  const left = useSecondsUntil(until);
  const words = {
    connecting: "connecting…",
    live: "online",
    waiting: left > 0 ? `offline, ${left} s` : "offline, trying…",
    ended: "disconnected",
  }[state];
  return (
    <span class="state" data-testid="state" data-state={state} title={reason}>
      <span class="dot" aria-hidden="true" />
      <span role="status" aria-live={state === "waiting" ? "off" : "polite"}>
        {words}
      </span>
      {state === "waiting" && (
        <button type="button" class="link" data-testid="retry-now" onClick={retryNow}>
          retry now
        </button>
      )}
    </span>
  );
}

// The SDK and the queues' board end their wait when the browser says that the network is back; the user knows that too.
function retryNow(): void {
  dispatchEvent(new Event("online"));
}

function useSecondsUntil(until: number): number {
  const [left, setLeft] = useState(0);
  useEffect(() => {
    const tell = () => setLeft(Math.max(0, Math.ceil((until - Date.now()) / 1_000)));
    tell();
    if (until === 0) return;
    const timer = setInterval(tell, 250);
    return () => clearInterval(timer);
  }, [until]);
  return left;
}
