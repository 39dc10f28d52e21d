import { useEffect, useMemo } from "preact/hooks";
import type { Board } from "../model/board";
import { Polled } from "../model/polled";

/**
 * Asks a question for as long as the component is shown. Where what it is about changes, the old answer goes at once; where
 * only the way it is asked does, it stays until there is a new one.
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
