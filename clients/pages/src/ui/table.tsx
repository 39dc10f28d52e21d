import type { ComponentChildren } from "preact";

/** Column is a column's name and an explanation. Its cells hold numbers unless text is set. */
export interface Column {
  readonly name: string;
  readonly title?: string;
  readonly text?: boolean;
}

/** Table is a table that scrolls sideways on a narrow screen. rows is the heading of the rows. */
export function Table(props: {
  testid: string;
  rows: string;
  columns: readonly Column[];
  children: ComponentChildren;
}) {
  const { testid, rows, columns, children } = props;
  return (
    <div class="table-box">
      <table data-testid={testid}>
        <thead>
          <tr>
            <th scope="col">{rows}</th>
            {columns.map(({ name, title, text }) => (
              <th key={name} scope="col" class={text ? undefined : "number"} title={title}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}
