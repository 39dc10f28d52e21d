import { useSignal } from "@preact/signals";
import { failure } from "../../connection/failure";
import { ErrorText } from "../../ui/empty";
import { count, dayAndTime } from "../../ui/format";
import { Icon } from "../../ui/icon";
import { type Column, Table } from "../../ui/table";
import { outcomeText } from "../model/actions";
import type { Polled } from "../model/polled";
import type { Job, JobInGroup, JobState } from "../model/types";
import { routeFragment, routeTo } from "../route";
import { type Fact, Facts, Headers, Payload } from "./content";
import { openDialog } from "./dialogs";
import { StateMark } from "./jobs";
import type { PartProps } from "./topic";
import { usePolled } from "./usepolled";
import { Since, Until } from "./when";

const columns: readonly Column[] = [
  { name: "State", text: true },
  { name: "Since", title: "Time in this state" },
  { name: "Attempts", title: "Attempts that were charged" },
  { name: "Deliveries", title: "All deliveries, also those that did not count as an attempt" },
  { name: "Next attempt", text: true },
  { name: "Consumer", text: true },
  { name: "Last failure", text: true },
  { name: "Actions", hidden: true },
];

// The states from which a message is not delivered again.
const ended: readonly JobState[] = ["settled", "dead"];

/** JobPart shows one message and its state in each group. */
export function JobPart({ board, view, route, group }: PartProps) {
  const topic = view.topic.name;
  const { job: id, state } = route;
  const polled = usePolled(board, (signal) => board.client.job(topic, id, signal), [topic, id]);
  const job = polled.value.value;
  return (
    <section class="part" aria-label="Job" data-testid="job-detail">
      <p>
        <a class="back-link" href={routeFragment(routeTo(topic, { view: "jobs", group, state }))}>
          <Icon name="back" /> All jobs
        </a>
      </p>
      <h2 class="job-title">
        <code>{id}</code>
      </h2>
      {job ? <Found topic={topic} job={job} board={board} polled={polled} /> : null}
      {!job && !polled.error.value && <p class="quiet">Loading…</p>}
      <ErrorText text={polled.error.value} />
    </section>
  );
}

interface FoundProps extends Pick<PartProps, "board"> {
  topic: string;
  job: Job;
  polled: Polled<Job>;
}

function Found({ board, topic, job, polled }: FoundProps) {
  const { messageId, partition, key, produceTime, dueTime, groups } = job;
  const note = useSignal("");
  const problem = useSignal("");
  const done = (text: string) => {
    note.value = text;
    problem.value = "";
    polled.again();
  };
  const retry = async (group: string) => {
    try {
      const retried = await board.change((signal) => board.client.retry(topic, group, [messageId], signal));
      done(outcomeText("Made due", { done: retried, failed: 0, problems: [] }));
    } catch (cause) {
      problem.value = failure(cause).text;
    }
  };
  const scheduled = groups.length === 0 ? dueTime !== null : groups.every((g) => g.state === "scheduled");
  const over = groups.length > 0 && groups.every((g) => ended.includes(g.state));
  const facts: Fact[] = [
    ["Partition", String(partition)],
    ["Key", key || "none"],
    ["Produced", produceTime ? dayAndTime(produceTime) : "not known"],
  ];
  if (dueTime) facts.push(["Due", dayAndTime(dueTime)]);
  return (
    <>
      <Facts facts={facts} />
      {groups.length > 0 && (
        <Table testid="job-groups" rows="Group" columns={columns}>
          {groups.map((g) => (
            <GroupRow key={g.group} topic={topic} of={g} retry={() => void retry(g.group)} />
          ))}
        </Table>
      )}
      <div class="job-actions">
        {scheduled && (
          <button
            type="button"
            class="small"
            data-testid="reschedule-job"
            onClick={() => openDialog({ kind: "reschedule", topic, ids: [messageId], done })}
          >
            Reschedule…
          </button>
        )}
        {!over && (
          <button
            type="button"
            class="small danger"
            data-testid="cancel-job"
            onClick={() => openDialog({ kind: "cancel", topic, ids: [messageId], done })}
          >
            Cancel the message…
          </button>
        )}
        <span role="status" class="quiet" data-testid="job-note">
          {note}
        </span>
        <ErrorText text={problem.value} />
      </div>
      <Headers headers={job.headers} />
      <Payload payload={job.payload} />
    </>
  );
}

function GroupRow({ topic, of, retry }: { topic: string; of: JobInGroup; retry: () => void }) {
  const { group, state, since, attempts, deliveries, retryTime, consumer, session, nodeId, reason, code, suspect } = of;
  const failed = reason || code;
  return (
    <tr data-testid={`job-in-${group}`} data-state={state}>
      <th scope="row">{group}</th>
      <td>
        <StateMark state={state} />
      </td>
      <td class="number">
        <Since at={since} />
      </td>
      <td class="number">{count(attempts)}</td>
      <td class="number">{state === "dead" && deliveries === 0 ? "–" : count(deliveries)}</td>
      <td>{retryTime ? <Until at={retryTime} /> : "–"}</td>
      <td class="name" title={session ? `session ${session}, node ${nodeId}` : undefined}>
        {consumer || "–"}
      </td>
      <td class="wrapped">
        {failed ? (
          <span class="why">
            {code && <code>{code}</code>} <span dir="auto">{reason}</span>
          </span>
        ) : suspect ? (
          "lost with its worker"
        ) : (
          "–"
        )}
      </td>
      <td class="number">
        {state === "retrying" && (
          <button type="button" class="small" data-testid="retry-job" onClick={retry}>
            Retry now
          </button>
        )}
        {state === "dead" && <a href={routeFragment(routeTo(topic, { view: "dead" }))}>Dead letters</a>}
      </td>
    </tr>
  );
}
