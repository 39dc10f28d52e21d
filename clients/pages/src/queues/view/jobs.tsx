import { type Signal, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { failure } from "../../connection/failure";
import { ErrorText } from "../../ui/empty";
import { Check, type Option, Select } from "../../ui/form";
import { count, size } from "../../ui/format";
import { type Column, Table } from "../../ui/table";
import { outcomeText } from "../model/actions";
import type { Polled } from "../model/polled";
import { type Job, type JobState, type ListedState, listedStates, type Page } from "../model/types";
import { routeFragment, routeTo } from "../route";
import { go } from "../session";
import { openDialog } from "./dialogs";
import { GroupChoice } from "./groupchoice";
import type { PartProps } from "./topic";
import { usePolled } from "./usepolled";
import { Since, Until } from "./when";

const pageSize = 50;

const columns: readonly Column[] = [
  { name: "State", text: true },
  { name: "When", text: true, title: "When it is due or retried, or since when it has been in this state" },
  { name: "Attempts", title: "Attempts that were charged" },
  { name: "Key", text: true },
  { name: "Size", title: "Of the payload" },
  { name: "Partition" },
  { name: "Detail", text: true, title: "The consumer that has it, or why the last attempt failed" },
];

/** JobsPart lists a group's messages by state. */
export function JobsPart(props: PartProps) {
  const { board, view, route, group } = props;
  const { name, groups } = view.topic;
  const key = useSignal("");
  const state: ListedState | "" = group === "" ? "scheduled" : route.state;
  const query = { topic: name, group, state, key: key.value.trim() };
  // The page tokens up to the shown page.
  const tokens = useSignal<readonly string[]>([""]);
  const selected = useSignal<ReadonlySet<string>>(new Set());
  const subject = [name, group, state, query.key];
  useEffect(() => {
    tokens.value = [""];
    selected.value = new Set();
  }, subject);
  const token = tokens.value.at(-1) ?? "";
  const polled = usePolled(board, (signal) => board.client.jobs(query, token, pageSize, signal), subject, [token]);
  const page = polled.value.value;
  return (
    <section class="part" aria-label="Jobs">
      <div class="part-head">
        <GroupChoice groups={groups} group={group} choose={(to) => go({ ...route, group: to })} />
        <Select
          label="State"
          testid="job-state"
          value={state}
          options={stateOptions(group === "")}
          change={(to) => go({ ...route, state: to })}
        />
        <input
          type="search"
          class="field small-field key-field"
          data-testid="job-key"
          aria-label="Only messages with this key"
          placeholder="Key"
          autocomplete="off"
          autocapitalize="none"
          spellcheck={false}
          maxLength={256}
          value={key}
          onInput={(event) => {
            key.value = event.currentTarget.value;
          }}
        />
        <ErrorText text={polled.error.value} />
      </div>
      {page && <Actions {...props} jobs={page.items} selected={selected} polled={polled} />}
      {page && <List topic={name} group={group} page={page} selected={selected} />}
      <Pages page={page} tokens={tokens} />
    </section>
  );
}

function stateOptions(noGroup: boolean): readonly Option<ListedState | "">[] {
  const states = listedStates.map((state): Option<ListedState> => [state, state]);
  return noGroup ? [["scheduled", "scheduled"]] : [["", "all"], ...states];
}

function Pages({ page, tokens }: { page: Page<Job> | null; tokens: Signal<readonly string[]> }) {
  const first = tokens.value.length === 1;
  if (!page || (first && page.next === "")) return null;
  return (
    <div class="pages">
      <button
        type="button"
        class="small"
        data-testid="previous"
        disabled={first}
        onClick={() => {
          tokens.value = tokens.value.slice(0, -1);
        }}
      >
        Previous
      </button>
      <span class="quiet">Page {count(tokens.value.length)}</span>
      <button
        type="button"
        class="small"
        data-testid="next"
        disabled={page.next === ""}
        onClick={() => {
          tokens.value = [...tokens.value, page.next];
        }}
      >
        Next
      </button>
    </div>
  );
}

/** stateOf returns the state of a listed job. One without groups is scheduled. */
export function stateOf(job: Job): JobState {
  return job.groups[0]?.state ?? "scheduled";
}

interface ActionProps extends PartProps {
  jobs: readonly Job[];
  selected: Signal<ReadonlySet<string>>;
  polled: Polled<Page<Job>>;
}

function Actions({ board, view, group, jobs, selected, polled }: ActionProps) {
  const note = useSignal("");
  const problem = useSignal("");
  const topic = view.topic.name;
  const chosen = jobs.filter((job) => selected.value.has(job.messageId));
  const ids = (state?: JobState) =>
    chosen.filter((job) => state === undefined || stateOf(job) === state).map((job) => job.messageId);
  const done = (text: string) => {
    note.value = text;
    problem.value = "";
    selected.value = new Set();
    polled.again();
  };
  const retry = async () => {
    try {
      const all = ids("retrying");
      const retried = await board.change((signal) => board.client.retry(topic, group, all, signal));
      done(outcomeText("Made due", { done: retried, failed: 0, problems: [] }));
    } catch (cause) {
      problem.value = failure(cause).text;
    }
  };
  const all = jobs.length > 0 && chosen.length === jobs.length;
  return (
    <>
      <div class="job-actions">
        <Check
          testid="select-all"
          checked={all}
          indeterminate={chosen.length > 0 && !all}
          disabled={jobs.length === 0}
          change={(on) => {
            selected.value = new Set(on ? jobs.map((job) => job.messageId) : []);
          }}
        >
          <span data-testid="selected">{chosen.length > 0 ? `${count(chosen.length)} selected` : "Select shown"}</span>
        </Check>
        <button
          type="button"
          class="small"
          data-testid="retry-jobs"
          disabled={ids("retrying").length === 0}
          onClick={() => void retry()}
        >
          Retry now
        </button>
        <button
          type="button"
          class="small"
          data-testid="reschedule-jobs"
          disabled={ids("scheduled").length === 0}
          onClick={() => openDialog({ kind: "reschedule", topic, ids: ids("scheduled"), done })}
        >
          Reschedule…
        </button>
        <button
          type="button"
          class="small danger apart"
          data-testid="cancel-jobs"
          disabled={chosen.length === 0}
          onClick={() => openDialog({ kind: "cancel", topic, ids: ids(), done })}
        >
          Cancel…
        </button>
      </div>
      {(note.value || problem.value) && (
        <div class="notes">
          <p role="status" class="quiet" data-testid="jobs-note">
            {note}
          </p>
          <ErrorText text={problem.value} />
        </div>
      )}
    </>
  );
}

function List(props: { topic: string; group: string; page: Page<Job>; selected: Signal<ReadonlySet<string>> }) {
  const { topic, group, page, selected } = props;
  if (page.items.length === 0) {
    return (
      <p class="quiet" data-testid="no-jobs">
        {page.next === "" ? "No messages." : "No messages on this page. More pages follow."}
      </p>
    );
  }
  return (
    <Table testid="jobs" rows="Message" columns={columns}>
      {page.items.map((job) => (
        <Row key={job.messageId} topic={topic} group={group} job={job} selected={selected} />
      ))}
    </Table>
  );
}

function Row(props: { topic: string; group: string; job: Job; selected: Signal<ReadonlySet<string>> }) {
  const { topic, group, job, selected } = props;
  const { messageId, key, payloadBytes, partition } = job;
  const state = stateOf(job);
  const select = (on: boolean) => {
    const next = new Set(selected.value);
    if (on) next.add(messageId);
    else next.delete(messageId);
    selected.value = next;
  };
  return (
    <tr data-testid="job" data-id={messageId} data-state={state}>
      <th scope="row">
        <span class="job-id">
          <input
            type="checkbox"
            aria-label={`Select message ${messageId}`}
            checked={selected.value.has(messageId)}
            onChange={(event) => select(event.currentTarget.checked)}
          />
          <a class="id" href={routeFragment(routeTo(topic, { view: "jobs", group, job: messageId }))} title={messageId}>
            {messageId}
          </a>
        </span>
      </th>
      <td>
        <StateMark state={state} />
      </td>
      <td>
        <When job={job} state={state} />
      </td>
      <td class="number">{count(job.groups[0]?.attempts ?? 0)}</td>
      <td class="name" dir="auto" title={key}>
        {key || <span class="quiet">none</span>}
      </td>
      <td class="number">{size(payloadBytes)}</td>
      <td class="number">{partition}</td>
      <td class="name wide">
        <Detail job={job} />
      </td>
    </tr>
  );
}

/** StateMark shows a job's state in its color. */
export function StateMark({ state }: { state: JobState }) {
  return (
    <span class="job-state" data-state={state}>
      {state || "unknown"}
    </span>
  );
}

function When({ job, state }: { job: Job; state: JobState }) {
  const group = job.groups[0];
  switch (state) {
    case "scheduled":
      return <Until at={job.dueTime} />;
    case "retrying":
      return <Until at={group?.retryTime ?? null} />;
    case "waiting":
      return <Since at={job.produceTime} ago />;
    default:
      return group?.since ? <Since at={group.since} ago /> : <>–</>;
  }
}

function Detail({ job }: { job: Job }) {
  const { consumer = "", reason = "", code = "", suspect = false } = job.groups[0] ?? {};
  if (consumer) return <>{consumer}</>;
  if (!reason && !code) return suspect ? <span class="quiet">lost with its worker</span> : null;
  return (
    <span class="why" title={reason}>
      {code && <code>{code}</code>} <span dir="auto">{reason}</span>
    </span>
  );
}
