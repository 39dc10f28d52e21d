/**
 * onWake calls callback whenever the page becomes visible, the network returns, or wake is called.
 */
export function onWake(callback: () => void): void {
  addEventListener("online", callback);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) callback();
  });
}

/**
 * wake makes every waiting connection of the page try again now: those of the SDK and the callbacks
 * of onWake. It dispatches the browser's event for a returned network, which both handle.
 */
export function wake(): void {
  dispatchEvent(new Event("online"));
}
