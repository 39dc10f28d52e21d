import { ErrorText } from "../../ui/empty";
import { count, duration } from "../../ui/format";
import { type Column, Table } from "../../ui/table";
import type { Board, TopicView } from "../model/board";
import type { GroupCounts, Owner } from "../model/types";
import { GroupChoice } from "./groupchoice";
import { usePolled } from "./usepolled";

/** PartitionsPart shows the partitions, with a group's counts and owner in each. */
export function PartitionsPart(props: {
  board: Board;
  view: TopicView;
  group: string;
  choose: (group: string) => void;
}) {
  const { board, view, group, choose } = props;
  const { name, groups, strictOrder } = view.topic;
  const owners = usePolled(board, (signal) => board.client.owners(name, group, signal), [name, group]);
  const owner = new Map(owners.value.value?.map((o) => [o.partition, o]));
  return (
    <section class="part" aria-label="Partitions">
      <div class="part-head">
        {groups.length > 0 ? (
          <GroupChoice groups={groups} group={group} choose={choose} />
        ) : (
          <p class="quiet">The topic has no consumer group, so its partitions have no owners.</p>
        )}
        <ErrorText text={owners.error.value} />
      </div>
      <Table testid="partitions" rows="Partition" columns={columns(group, strictOrder)}>
        {view.stats?.partitions.map((p) => (
          <tr key={p.partition} data-testid={`partition-${p.partition}`}>
            <th scope="row">{p.partition}</th>
            <td class="number">{count(p.length)}</td>
            <td class="number">{count(p.delayed)}</td>
            {group && (
              <OfGroup
                counts={p.groups.find((g) => g.group === group)}
                owner={owner.get(p.partition)}
                strict={strictOrder}
              />
            )}
          </tr>
        ))}
      </Table>
    </section>
  );
}

function columns(group: string, strictOrder: boolean): Column[] {
  const topic: Column[] = [{ name: "Depth" }, { name: "Delayed" }];
  if (group === "") return topic;
  const parked: Column[] = [{ name: "Parked", title: "Waiting for an earlier message with the same key" }];
  return [
    ...topic,
    { name: "Unread" },
    { name: "Pending" },
    { name: "Retrying" },
    ...(strictOrder ? parked : []),
    { name: "Oldest", title: "Age of the oldest message that is not settled" },
    { name: "Owner", title: "The consumer that holds the lease", text: true },
    { name: "Epoch", title: "Increases with each change of owner" },
    { name: "Lease", title: "Time until the lease expires, unless it is renewed" },
  ];
}

function OfGroup(props: { counts: GroupCounts | undefined; owner: Owner | undefined; strict: boolean }) {
  const { counts, owner, strict } = props;
  const owned = owner !== undefined && owner.streamId !== "";
  return (
    <>
      <td class="number">{count(counts?.unread ?? 0)}</td>
      <td class="number">{count(counts?.pending ?? 0)}</td>
      <td class="number">{count(counts?.retrying ?? 0)}</td>
      {strict && <td class="number">{count(counts?.parked ?? 0)}</td>}
      <td class="number">{counts && counts.oldestAge > 0 ? duration(counts.oldestAge) : "–"}</td>
      <td class="name" title={owned ? `stream ${owner.streamId} on node ${owner.nodeId}` : undefined}>
        {owned ? owner.consumer : <span class="quiet">none</span>}
      </td>
      <td class="number">{owner ? String(owner.epoch) : "–"}</td>
      <td class="number">{owned ? duration(owner.leaseLeft) : "–"}</td>
    </>
  );
}
