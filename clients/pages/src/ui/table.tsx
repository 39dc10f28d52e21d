import type { ComponentChildren } from "preact";

/**
 * Column is a column's name and an explanation. Its cells hold numbers unless text is set. With
 * hidden, only screen readers get the name.
 */
export interface Column {
  readonly name: string;
  readonly title?: string;
  readonly text?: boolean;
  readonly hidden?: boolean;
}

/** Sorted is the column by which the rows are sorted, and what a click on a heading does. */
export interface Sorted {
  readonly name: string;
  readonly down: boolean;
  readonly sort: (name: string) => void;
}

/**
 * Table is a table that scrolls sideways on a narrow screen. rows is the heading of the rows. With
 * sorted, the headings are buttons.
 */
export function Table(props: {
  testid: string;
  rows: string;
  columns: readonly Column[];
  sorted?: Sorted;
  children: ComponentChildren;
}) {
  const { testid, rows, columns, sorted, children } = props;
  return (
    <div class="table-box">
      <table data-testid={testid}>
        <thead>
          <tr>
            {[{ name: rows, text: true }, ...columns].map((column) => (
              <Heading key={column.name} {...column} sorted={sorted} />
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

function Heading({ name, title, text, hidden, sorted }: Column & { sorted: Sorted | undefined }) {
  const by = sorted?.name === name;
  return (
    <th
      scope="col"
      class={text ? undefined : "number"}
      title={title}
      aria-sort={by ? (sorted.down ? "descending" : "ascending") : undefined}
    >
      {sorted ? (
        <button
          type="button"
          class="heading"
          data-testid={`sort-${name.toLowerCase()}`}
          onClick={() => sorted.sort(name)}
        >
          {name}
          <span aria-hidden="true">{by ? (sorted.down ? " ↓" : " ↑") : ""}</span>
        </button>
      ) : (
        <span class={hidden ? "hidden" : undefined}>{name}</span>
      )}
    </th>
  );
}
