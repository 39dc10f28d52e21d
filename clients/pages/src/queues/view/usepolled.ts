import { useEffect, useMemo } from "preact/hooks";
import type { Board } from "../model/board";
import { Polled } from "../model/polled";

/**
 * usePolled repeats request while the component is shown. When subject changes, the old result is
 * dropped at once. When only parameters changes, it stays until there is a new one.
 */
export function usePolled<T>(
  board: Board,
  request: (signal: AbortSignal) => Promise<T>,
  subject: readonly unknown[],
  parameters: readonly unknown[] = [],
): Polled<T> {
  const polled = useMemo(() => new Polled<T>(board), [board, ...subject]);
  useEffect(() => () => polled.close(), [polled]);
  useEffect(() => polled.start(request), [polled, ...parameters]);
  return polled;
}
