import { useSignal } from "@preact/signals";
import { ErrorText } from "../../ui/empty";
import { Select } from "../../ui/form";
import { count, duration } from "../../ui/format";
import { type Column, Table } from "../../ui/table";
import type { Board, TopicView } from "../model/board";
import type { PendingOrder } from "../model/types";
import { GroupChoice } from "./groupchoice";
import { usePolled } from "./usepolled";

const initialLimit = 50;
const maxLimit = 1_000; // the server's maximum page size

const columns: readonly Column[] = [
  { name: "Partition" },
  { name: "Consumer", text: true },
  { name: "Attempt", title: "How often the message was delivered" },
  { name: "Idle", title: "Time since it was delivered" },
];

/** PendingPart shows a group's deliveries that are not settled. */
export function PendingPart(props: { board: Board; view: TopicView; group: string; choose: (group: string) => void }) {
  const { board, view, group, choose } = props;
  const { name, groups } = view.topic;
  const order = useSignal<PendingOrder>("idle");
  const limit = useSignal(initialLimit);
  const [by, most] = [order.value, limit.value];
  const polled = usePolled(
    board,
    async (signal) => (group === "" ? null : board.client.pending(name, group, by, most, signal)),
    [name, group],
    [by, most],
  );
  if (group === "") {
    return <p class="quiet part">The topic has no consumer group, so nothing is delivered.</p>;
  }
  const { entries, total } = polled.value.value ?? { entries: [], total: 0 };
  return (
    <section class="part" aria-label="Pending deliveries">
      <div class="part-head">
        <GroupChoice groups={groups} group={group} choose={choose} />
        <Select
          label="First"
          testid="order"
          value={by}
          options={[
            ["idle", "longest idle"],
            ["attempts", "most attempts"],
          ]}
          change={(first) => {
            order.value = first;
          }}
        />
        <span class="quiet" data-testid="pending-total">
          {polled.value.value ? `${count(total)} in flight` : ""}
        </span>
        <ErrorText text={polled.error.value} />
      </div>
      {polled.value.value && total === 0 ? (
        <p class="quiet" data-testid="no-pending">
          Nothing is in flight.
        </p>
      ) : (
        <Table testid="pending" rows="Message" columns={columns}>
          {entries.map((e) => (
            <tr key={e.messageId}>
              <th scope="row">
                <code>{e.messageId}</code>
              </th>
              <td class="number">{e.partition}</td>
              <td class="name">{e.consumer}</td>
              <td class="number">{count(e.attempt)}</td>
              <td class="number">{duration(e.idle)}</td>
            </tr>
          ))}
        </Table>
      )}
      {total > entries.length && entries.length < maxLimit && (
        <button
          type="button"
          onClick={() => {
            limit.value = Math.min(maxLimit, most * 4);
          }}
        >
          Show more
        </button>
      )}
      {total > maxLimit && entries.length === maxLimit && (
        <p class="quiet">
          The first {count(maxLimit)} of {count(total)} are shown.
        </p>
      )}
    </section>
  );
}
