import type { ReadonlySignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import type { ConnectionState } from "../connection/state";
import { wake } from "../connection/wake";

/**
 * ConnectionStatus shows the state of the connection in one word. Before the next attempt to
 * connect, it shows the seconds left and a button to try now.
 */
export function ConnectionStatus({ connection }: { connection: ReadonlySignal<ConnectionState> }) {
  const now = connection.value;
  const left = useSecondsUntil(now.state === "waiting" ? now.until : 0);
  const words = {
    connecting: "connecting…",
    live: "online",
    waiting: left > 0 ? `offline, ${left} s` : "offline, trying…",
    ended: "disconnected",
  }[now.state];
  const reason = now.state === "waiting" || now.state === "ended" ? now.reason : undefined;
  return (
    <span class="state" data-testid="state" data-state={now.state} title={reason}>
      <span class="dot" aria-hidden="true" />
      <span role="status" aria-live={now.state === "waiting" ? "off" : "polite"}>
        {words}
      </span>
      {now.state === "waiting" && (
        <button type="button" class="link" data-testid="retry-now" onClick={wake}>
          Try now
        </button>
      )}
    </span>
  );
}

function useSecondsUntil(until: number): number {
  const [left, setLeft] = useState(0);
  useEffect(() => {
    const update = () => setLeft(Math.max(0, Math.ceil((until - Date.now()) / 1_000)));
    update();
    if (until === 0) return;
    const timer = setInterval(update, 250);
    return () => clearInterval(timer);
  }, [until]);
  return left;
}
