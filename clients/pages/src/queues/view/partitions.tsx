import type { Board, TopicView } from "../model/board";
import { count, duration } from "../model/format";
import type { GroupCounts, Owner } from "../model/types";
import { GroupChoice } from "./groupchoice";
import { usePolled } from "./usepolled";

/** The partitions, with what a group has to do in each, and who does it. */
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
          <p class="quiet">The topic has no consumer group, so nobody has its partitions.</p>
        )}
        <Problem text={owners.error.value} />
      </div>
      <div class="table-box">
        <table data-testid="partitions">
          <thead>
            <tr>
              <th scope="col">Partition</th>
              <th scope="col" class="number">
                Depth
              </th>
              <th scope="col" class="number">
                Delayed
              </th>
              {group && (
                <>
                  <th scope="col" class="number">
                    Unread
                  </th>
                  <th scope="col" class="number">
                    Pending
                  </th>
                  <th scope="col" class="number">
                    Retrying
                  </th>
                  {strictOrder && (
                    <th scope="col" class="number" title="Waiting for an earlier message of their key">
                      Parked
                    </th>
                  )}
                  <th scope="col" class="number" title="Age of the oldest message that is not settled">
                    Oldest
                  </th>
                  <th scope="col">Owner</th>
                  <th scope="col" class="number" title="Grows with each change of owner">
                    Epoch
                  </th>
                  <th scope="col" class="number" title="When the lease ends unless it is renewed">
                    Lease
                  </th>
                </>
              )}
            </tr>
          </thead>
          <tbody>
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
          </tbody>
        </table>
      </div>
    </section>
  );
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
        {owned ? owner.consumer : <span class="quiet">nobody</span>}
      </td>
      <td class="number">{owner ? String(owner.epoch) : "–"}</td>
      <td class="number">{owned ? duration(owner.leaseLeft) : "–"}</td>
    </>
  );
}

/** Why a part could not be loaded; it is asked for again by itself. */
export function Problem({ text }: { text: string }) {
  return text ? (
    <p class="problem" role="alert">
      {text}
    </p>
  ) : null;
}
