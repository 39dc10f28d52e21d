import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** rowHeight is the height of a row with its gap, in rem. list.css has the same. */
const rowHeight = 3.375;

/** The number of rows that are drawn beyond each end of the viewport. */
const margin = 8;

/**
 * Rows is a long list of rows of the same height. Only those near the viewport are in the document,
 * and the row that the Tab key reaches. The list is one Tab stop: arrow up and down, Page up and
 * down, Home and End move the focus within it.
 */
export function Rows<T extends { readonly id: string }>(props: {
  items: readonly T[];
  testid: string;
  label: string;
  /** The id of the row that Tab reaches first. Otherwise it is the first one. */
  current: string | undefined;
  /** Draws the button of a row. It must have the given tabIndex. */
  row: (item: T, tabIndex: 0 | -1) => ComponentChildren;
}) {
  const { items, testid, label, current, row } = props;
  const box = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState<string>();
  const moved = useRef(false);
  const viewport = useViewport(box);
  const at = position(items, active) ?? position(items, current) ?? 0;
  const first = Math.max(0, Math.floor(viewport.top / viewport.height) - margin);
  const end = Math.min(items.length, Math.ceil((viewport.top + viewport.size) / viewport.height) + margin);
  const drawn = items.slice(first, end).map((item, i) => ({ item, index: first + i }));
  const tabStop = items[at];
  if (tabStop && at < first) drawn.unshift({ item: tabStop, index: at });
  if (tabStop && at >= end) drawn.push({ item: tabStop, index: at });

  useLayoutEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    box.current?.querySelector<HTMLElement>("[tabindex='0']")?.focus({ preventScroll: true });
  });
  const move = (to: number) => {
    const item = items[Math.min(items.length - 1, Math.max(0, to))];
    if (!item || !box.current) return;
    moved.current = true;
    setActive(item.id);
    reveal(box.current, items.indexOf(item) * viewport.height, viewport.height);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const page = Math.max(1, Math.floor(viewport.size / viewport.height) - 1);
    const steps: Record<string, number> = { ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page };
    const ends: Record<string, number> = { Home: 0, End: items.length - 1 };
    const to = ends[event.key] ?? at + (steps[event.key] ?? Number.NaN);
    if (Number.isNaN(to)) return;
    event.preventDefault();
    move(to);
  };
  // A click moves the focus too.
  const onFocus = (event: FocusEvent) => {
    const id = (event.target as HTMLElement).closest<HTMLElement>("[data-row]")?.dataset.row;
    if (id !== undefined) setActive(id);
  };
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: keys move the focus among its buttons
    <div class="rows" ref={box} data-testid={testid} onKeyDown={onKeyDown} onFocusIn={onFocus}>
      <ul aria-label={label} style={{ height: `${items.length * rowHeight}rem` }}>
        {drawn.map(({ item, index }) => (
          <li
            key={item.id}
            data-row={item.id}
            aria-setsize={items.length}
            aria-posinset={index + 1}
            style={{ top: `${index * rowHeight}rem` }}
          >
            {row(item, index === at ? 0 : -1)}
          </li>
        ))}
      </ul>
    </div>
  );
}

function position(items: readonly { id: string }[], id: string | undefined): number | undefined {
  const at = id === undefined ? -1 : items.findIndex((item) => item.id === id);
  return at < 0 ? undefined : at;
}

function reveal(box: HTMLElement, top: number, height: number): void {
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
}

/** Viewport is the visible part of the list and the height of a row, in pixels. */
interface Viewport {
  readonly top: number;
  readonly size: number;
  readonly height: number;
}

function useViewport(box: { readonly current: HTMLElement | null }): Viewport {
  const [viewport, setViewport] = useState<Viewport>({ top: 0, size: 0, height: 54 });
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => {
      const height = rowHeight * Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
      const next = { top: element.scrollTop, size: element.clientHeight, height };
      // While the reader is within the drawn rows, nothing is drawn again.
      setViewport((now) => (near(now, next) ? now : next));
    };
    measure();
    const sized = new ResizeObserver(measure);
    sized.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      sized.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);
  return viewport;
}

function near(a: Viewport, b: Viewport): boolean {
  return a.size === b.size && a.height === b.height && Math.abs(a.top - b.top) < (margin / 2) * b.height;
}
