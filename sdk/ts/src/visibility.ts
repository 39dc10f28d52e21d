/**
 * onVisibility calls changed with whether the page is hidden, at once and whenever that changes. It
 * returns a function that removes the listener, or undefined on platforms without pages.
 */
export function onVisibility(changed: (hidden: boolean) => void): (() => void) | undefined {
  if (typeof document === "undefined") {
    return undefined;
  }
  const page = document;
  const report = () => changed(page.visibilityState !== "visible");
  page.addEventListener("visibilitychange", report);
  report();
  return () => page.removeEventListener("visibilitychange", report);
}
