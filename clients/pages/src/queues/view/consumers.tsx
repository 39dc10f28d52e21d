import { useSignal } from "@preact/signals";
import { ErrorText } from "../../ui/empty";
import { count, duration } from "../../ui/format";
import { type Column, Table } from "../../ui/table";
import type { Consumer } from "../model/types";
import { routeFragment, routeTo } from "../route";
import { go } from "../session";
import { GroupChoice } from "./groupchoice";
import type { PartProps } from "./topic";
import { usePolled } from "./usepolled";
import { Since } from "./when";

const initialLimit = 100;
const maxLimit = 1_000; // the server's maximum page size

const columns: readonly Column[] = [
  { name: "State", text: true, title: "Attached: it has a stream. Detached: its stream ended, and it can resume." },
  { name: "Since", title: "Time in this state" },
  { name: "Running", title: "Deliveries that a handler began, of as many as it handles at the same time" },
  { name: "In flight", title: "All deliveries that it holds" },
  { name: "Works on", title: "The message of the oldest delivery that it holds", text: true },
  { name: "For", title: "The age of that delivery" },
  { name: "Subject", text: true },
  { name: "Node", text: true },
];

/** ConsumersPart shows a group's sessions and what each works on. */
export function ConsumersPart({ board, view, route, group }: PartProps) {
  const { name, groups } = view.topic;
  const limit = useSignal(initialLimit);
  const most = limit.value;
  const polled = usePolled(
    board,
    async (signal) => (group === "" ? null : board.client.consumers(name, group, "", most, signal)),
    [name, group],
    [most],
  );
  if (group === "") return <p class="quiet part">The topic has no consumer group, so it has no consumers.</p>;
  const page = polled.value.value;
  return (
    <section class="part" aria-label="Consumers">
      <div class="part-head">
        <GroupChoice groups={groups} group={group} choose={(to) => go({ ...route, group: to })} />
        <ErrorText text={polled.error.value} />
        {page && page.missingNodes.length > 0 && (
          <p class="problem" data-testid="missing-nodes">
            Without the consumers of {page.missingNodes.join(", ")}, which did not answer.
          </p>
        )}
      </div>
      {page && page.items.length === 0 && (
        <p class="quiet" data-testid="no-consumers">
          The group has no consumers.
        </p>
      )}
      {page && page.items.length > 0 && (
        <Table testid="consumers" rows="Consumer" columns={columns}>
          {page.items.map((consumer) => (
            <Row key={consumer.session} topic={name} group={group} consumer={consumer} />
          ))}
        </Table>
      )}
      {page && page.next !== "" && most < maxLimit && (
        <button
          type="button"
          onClick={() => {
            limit.value = maxLimit;
          }}
        >
          Show more
        </button>
      )}
      {page && page.next !== "" && most === maxLimit && (
        <p class="quiet">The first {count(maxLimit)} consumers are shown.</p>
      )}
    </section>
  );
}

function Row({ topic, group, consumer }: { topic: string; group: string; consumer: Consumer }) {
  const { state, since, running, concurrency, inFlight, oldestMessageId, oldestTime, subject, nodeId } = consumer;
  return (
    <tr data-testid={`consumer-${consumer.consumer}`}>
      <th scope="row" class="name" title={`session ${consumer.session}`}>
        {consumer.consumer}
      </th>
      <td data-state={state} class="session-state">
        {state || "unknown"}
      </td>
      <td class="number">
        <Since at={since} />
      </td>
      <td class="number">
        {count(running)}/{count(concurrency)}
      </td>
      <td class="number">{count(inFlight)}</td>
      <td>
        {oldestMessageId ? (
          <a
            class="id"
            href={routeFragment(routeTo(topic, { view: "jobs", group, job: oldestMessageId }))}
            title={oldestMessageId}
          >
            {oldestMessageId}
          </a>
        ) : (
          <span class="quiet">nothing</span>
        )}
      </td>
      <td class="number">{oldestTime ? duration(Math.max(0, Date.now() - oldestTime.getTime())) : "–"}</td>
      <td class="name" title={subject}>
        {subject}
      </td>
      <td class="name" title={nodeId}>
        {nodeId}
      </td>
    </tr>
  );
}
