import { useEffect, useMemo } from "preact/hooks";
import type { Board } from "../model/board";
import { Polled } from "../model/polled";

/**
 * usePolled repeats question while the component is shown. When about changes, the old result is
 * dropped at once. When only asked changes, it stays until there is a new one.
 */
export function usePolled<T>(
  board: Board,
  question: (signal: AbortSignal) => Promise<T>,
  about: readonly unknown[],
  asked: readonly unknown[] = [],
): Polled<T> {
  const polled = useMemo(() => new Polled<T>(board), [board, ...about]);
  useEffect(() => () => polled.close(), [polled]);
  useEffect(() => polled.ask(question), [polled, ...asked]);
  return polled;
}
