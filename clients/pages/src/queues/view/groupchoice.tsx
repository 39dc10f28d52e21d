/** Chooses one of a topic's groups; with all, also all of them. */
export function GroupChoice(props: {
  groups: readonly string[];
  group: string;
  choose: (group: string) => void;
  all?: boolean;
}) {
  const { groups, group, choose, all = false } = props;
  return (
    <label class="choice">
      <span>Group</span>
      <select data-testid="group" value={group} onChange={(event) => choose(event.currentTarget.value)}>
        {all && <option value="">all</option>}
        {groups.map((name) => (
          <option key={name} value={name}>
            {name}
          </option>
        ))}
      </select>
    </label>
  );
}
