import { ErrorText } from "../../ui/empty";
import { count, duration } from "../../ui/format";
import { type Column, Table } from "../../ui/table";
import type { GroupCounts, Lease } from "../model/types";
import { go } from "../session";
import { GroupChoice } from "./groupchoice";
import type { PartProps } from "./topic";
import { usePolled } from "./usepolled";

/** PartitionsPart shows the partitions, with a group's counts and the node that dispatches each. */
export function PartitionsPart({ board, view, route, group }: PartProps) {
  const { name, groups } = view.topic;
  const leases = usePolled(board, (signal) => board.client.leases(name, group, signal), [name, group]);
  const lease = new Map(leases.value.value?.map((one) => [one.partition, one]));
  const exclusive = board.groups.value?.find((g) => g.name === group)?.exclusive ?? false;
  return (
    <section class="part" aria-label="Partitions">
      <div class="part-head">
        <GroupChoice groups={groups} group={group} choose={(to) => go({ ...route, group: to })} />
        {groups.length === 0 && <p class="quiet">The topic has no consumer group, so no node dispatches it.</p>}
        <ErrorText text={leases.error.value} />
      </div>
      <Table testid="partitions" rows="Partition" columns={columns(group, exclusive)}>
        {view.stats?.partitions.map((p) => (
          <tr key={p.partition} data-testid={`partition-${p.partition}`}>
            <th scope="row">{p.partition}</th>
            <td class="number">{count(p.length)}</td>
            <td class="number">{count(p.scheduled)}</td>
            <td class="number">{count(p.deadLetters)}</td>
            {group && (
              <OfGroup
                counts={p.groups.find((g) => g.group === group)}
                lease={lease.get(p.partition)}
                exclusive={exclusive}
              />
            )}
          </tr>
        ))}
      </Table>
    </section>
  );
}

function columns(group: string, exclusive: boolean): Column[] {
  const topic: Column[] = [
    { name: "Stored", title: "Messages in the partition, settled or not" },
    { name: "Scheduled", title: "Not due yet" },
    { name: "Dead", title: "Dead letters of all groups" },
  ];
  if (group === "") return topic;
  const consumer: Column = { name: "Consumer", title: "The consumer that gets the messages", text: true };
  return [
    ...topic,
    { name: "Waiting" },
    { name: "Running" },
    { name: "Retrying" },
    { name: "Oldest", title: "Age of the oldest message that is not settled" },
    { name: "Node", title: "The node that dispatches the messages", text: true },
    ...(exclusive ? [consumer] : []),
  ];
}

function OfGroup(props: { counts: GroupCounts | undefined; lease: Lease | undefined; exclusive: boolean }) {
  const { counts, lease, exclusive } = props;
  return (
    <>
      <td class="number">{count(counts?.waiting ?? 0)}</td>
      <td class="number">{count(counts?.running ?? 0)}</td>
      <td class="number">{count(counts?.retrying ?? 0)}</td>
      <td class="number">{counts && counts.oldestAge > 0 ? duration(counts.oldestAge) : "–"}</td>
      <td class="name" data-column="node" title={lease?.nodeId ? `${lease.nodeId}, epoch ${lease.epoch}` : undefined}>
        {lease?.nodeId || <span class="quiet">none</span>}
      </td>
      {exclusive && <td class="name">{lease?.consumer || <span class="quiet">none</span>}</td>}
    </>
  );
}
