import { useSignal } from "@preact/signals";
import type { Board, TopicView } from "../model/board";
import { count, duration } from "../model/format";
import type { PendingOrder } from "../model/types";
import { GroupChoice } from "./groupchoice";
import { Problem } from "./partitions";
import { usePolled } from "./usepolled";

const few = 50;
const many = 1_000; // the most that one call gives

/** What a group has been delivered and has not settled. */
export function PendingPart(props: { board: Board; view: TopicView; group: string; choose: (group: string) => void }) {
  const { board, view, group, choose } = props;
  const { name, groups } = view.topic;
  const order = useSignal<PendingOrder>("idle");
  const limit = useSignal(few);
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
        <label class="choice">
          <span>First</span>
          <select
            data-testid="order"
            value={by}
            onChange={(event) => {
              order.value = event.currentTarget.value as PendingOrder;
            }}
          >
            <option value="idle">longest idle</option>
            <option value="attempts">most attempts</option>
          </select>
        </label>
        <span class="quiet" data-testid="pending-total">
          {polled.value.value ? `${count(total)} in flight` : ""}
        </span>
        <Problem text={polled.error.value} />
      </div>
      {polled.value.value && total === 0 ? (
        <p class="quiet" data-testid="no-pending">
          Nothing is in flight.
        </p>
      ) : (
        <div class="table-box">
          <table data-testid="pending">
            <thead>
              <tr>
                <th scope="col">Message</th>
                <th scope="col" class="number">
                  Partition
                </th>
                <th scope="col">Consumer</th>
                <th scope="col" class="number">
                  Attempt
                </th>
                <th scope="col" class="number">
                  Idle
                </th>
              </tr>
            </thead>
            <tbody>
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
            </tbody>
          </table>
        </div>
      )}
      {total > entries.length && entries.length < many && (
        <button
          type="button"
          onClick={() => {
            limit.value = Math.min(many, most * 4);
          }}
        >
          Show more
        </button>
      )}
      {total > many && entries.length === many && (
        <p class="quiet">
          The first {count(many)} of {count(total)} are shown.
        </p>
      )}
    </section>
  );
}
