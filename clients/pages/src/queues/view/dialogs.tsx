import { signal, useSignal } from "@preact/signals";
import { Dialog } from "../../ui/dialog";
import { Select } from "../../ui/form";
import type { Board } from "../model/board";
import type { Group, Topic } from "../model/types";
import { NewGroup, NewMessage, NewTopic } from "./create";
import { EditGroup, EditTopic, MoveGroup, TrimTopic } from "./edit";
import { CancelJobs, RescheduleJobs } from "./jobdialogs";

/**
 * TypedQuestion asks for a name, which act gets as the user typed it. of is what has the name.
 */
interface TypedQuestion {
  kind: "typed";
  title: string;
  text: string;
  name: string;
  of: "topic" | "group";
  yes: string;
  act: (typed: string) => Promise<void>;
}

/** JobsQuestion is about messages of a topic. done gets the result as a text. */
export interface JobsQuestion {
  topic: string;
  ids: readonly string[];
  done: (text: string) => void;
}

type Question =
  | { kind: "topic" }
  | { kind: "group"; topic: string }
  | { kind: "produce"; topic: string }
  | { kind: "edit-topic"; topic: Topic }
  | { kind: "edit-group"; topic: string; group: Group }
  | { kind: "move-group"; topic: string; group: string }
  | { kind: "trim"; topic: string; done: (text: string) => void }
  | ({ kind: "cancel" } & JobsQuestion)
  | ({ kind: "reschedule" } & JobsQuestion)
  | { kind: "replay"; topic: string; what: string; act: (toTopic: string) => Promise<void> }
  | TypedQuestion
  | { kind: "confirm"; title: string; text: string; yes: string; act: () => Promise<void> }
  | { kind: "problem"; text: string };

const current = signal<Question | null>(null);

/** openDialog opens the dialog that asks the user a question. It replaces an open one. */
export function openDialog(question: Question): void {
  current.value = question;
}

/** closed removes the dialog. Dialogs call it once they have closed. */
export function closed(): void {
  current.value = null;
}

/** Dialogs shows the open dialog, if there is one. */
export function Dialogs({ board }: { board: Board }) {
  const question = current.value;
  switch (question?.kind) {
    case "topic":
      return <NewTopic board={board} />;
    case "group":
      return <NewGroup board={board} topic={question.topic} />;
    case "produce":
      return <NewMessage board={board} topic={question.topic} />;
    case "edit-topic":
      return <EditTopic board={board} topic={question.topic} />;
    case "edit-group":
      return <EditGroup board={board} topic={question.topic} group={question.group} />;
    case "move-group":
      return <MoveGroup board={board} topic={question.topic} group={question.group} />;
    case "trim":
      return <TrimTopic board={board} topic={question.topic} done={question.done} />;
    case "cancel":
      return <CancelJobs board={board} {...question} />;
    case "reschedule":
      return <RescheduleJobs board={board} {...question} />;
    case "replay":
      return <Replay board={board} {...question} />;
    case "typed":
      return <Typed {...question} />;
    case "confirm": {
      const { title, text, yes, act } = question;
      return (
        <Dialog title={title} yes={yes} act={act} closed={closed}>
          <p>{text}</p>
        </Dialog>
      );
    }
    case "problem":
      return (
        <Dialog title="The operation failed" closed={closed}>
          <p>{question.text}</p>
        </Dialog>
      );
    default:
      return null;
  }
}

function Typed({ title, text, name, of, yes, act }: TypedQuestion) {
  const typed = useSignal("");
  return (
    <Dialog title={title} yes={yes} danger ready={typed.value === name} act={() => act(typed.value)} closed={closed}>
      <p>
        {text} To confirm, enter the name of the {of}: <b>{name}</b>.
      </p>
      <input
        class="field"
        data-testid="confirm-name"
        aria-label={`Name of the ${of}`}
        autocomplete="off"
        autocapitalize="none"
        spellcheck={false}
        value={typed}
        onInput={(event) => {
          typed.value = event.currentTarget.value;
        }}
      />
    </Dialog>
  );
}

// The list shows the progress of a replay and why it failed: the dialog does not wait for it.
function Replay(props: { board: Board; topic: string; what: string; act: (toTopic: string) => Promise<void> }) {
  const { board, topic, what, act } = props;
  const to = useSignal("");
  const others = board.topics.value.map((view) => view.topic.name).filter((name) => name !== topic);
  return (
    <Dialog title="Replay dead letters?" yes="Replay" act={async () => void act(to.value)} closed={closed}>
      <p>
        {to.value === ""
          ? `This delivers ${what} to their groups again. Their attempts start again at 1.`
          : `This produces ${what} to ${to.value} as new messages for all its groups, and deletes the dead letters.`}
      </p>
      <Select
        label="To"
        testid="replay-to"
        value={to.value}
        options={[["", "their own groups"], ...others.map((name) => [name, `the topic ${name}`] as const)]}
        change={(topic) => {
          to.value = topic;
        }}
      />
    </Dialog>
  );
}
