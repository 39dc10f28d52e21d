/** onWake calls back whenever the page becomes visible, the network returns, or wake is called. */
export function onWake(callback: () => void): void {
  addEventListener("online", callback);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) callback();
  });
}

/**
 * wake makes every waiting connection of the page try again now: the SDK, and what listens by onWake. Both act on the
 * browser's event for a network that has returned, which this raises in its place.
 */
export function wake(): void {
  dispatchEvent(new Event("online"));
}
