/** The head of a table of numbers: what the rows are, and what their columns count, each with its name and what that means. */
export function TableHead({ rows, columns }: { rows: string; columns: readonly [string, string, ...unknown[]][] }) {
  return (
    <thead>
      <tr>
        <th scope="col">{rows}</th>
        {columns.map(([name, title]) => (
          <th key={name} scope="col" class="number" title={title}>
            {name}
          </th>
        ))}
      </tr>
    </thead>
  );
}
