import { type Option, Select } from "../../ui/form";

/**
 * GroupChoice selects one of a topic's groups. With all, it also offers all groups together, for
 * which choose gets an empty string. It shows nothing if there is no choice.
 */
export function GroupChoice(props: {
  groups: readonly string[];
  group: string;
  choose: (group: string) => void;
  all?: boolean;
}) {
  const { groups, group, choose, all = false } = props;
  if (groups.length < 2) return null;
  const options = groups.map((name): Option<string> => [name, name]);
  if (all) options.unshift(["", "all"]);
  return <Select label="Group" testid="group" value={group} options={options} change={choose} />;
}
