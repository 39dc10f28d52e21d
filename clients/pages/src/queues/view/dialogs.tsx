import { signal, useSignal } from "@preact/signals";
import { Dialog } from "../../ui/dialog";
import { Check, Field, Radios } from "../../ui/form";
import type { Board } from "../model/board";
import { namePattern } from "../route";
import { go } from "../session";

type Question =
  | { kind: "topic" }
  | { kind: "group"; topic: string }
  | { kind: "pause"; topic: string }
  | { kind: "purge"; topic: string; what: string; act: (typed: string) => Promise<void> }
  | { kind: "confirm"; title: string; text: string; yes: string; act: () => Promise<void> }
  | { kind: "problem"; text: string };

const current = signal<Question | null>(null);

/** openDialog opens the dialog that asks the user a question. It replaces an open one. */
export function openDialog(question: Question): void {
  current.value = question;
}

/** Dialogs shows the open dialog, if there is one. */
export function Dialogs({ board }: { board: Board }) {
  const question = current.value;
  switch (question?.kind) {
    case "topic":
      return <NewTopic board={board} />;
    case "group":
      return <NewGroup board={board} topic={question.topic} />;
    case "pause":
      return <Pause board={board} topic={question.topic} />;
    case "purge":
      return <Purge {...question} />;
    case "confirm": {
      const { title, text, yes, act } = question;
      return (
        <Dialog title={title} yes={yes} act={() => inBackground(act)} closed={closed}>
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

const closed = () => {
  current.value = null;
};

// inBackground runs an operation that shows its own progress and failures, without keeping the
// dialog open.
async function inBackground(act: () => Promise<void>): Promise<void> {
  void act();
}

function Purge({ topic, what, act }: { topic: string; what: string; act: (typed: string) => Promise<void> }) {
  const typed = useSignal("");
  return (
    <Dialog
      title="Purge dead letters?"
      yes="Purge"
      danger
      ready={typed.value === topic}
      act={() => inBackground(() => act(typed.value))}
      closed={closed}
    >
      <p>
        This removes {what} forever. To confirm, enter the name of the topic: <b>{topic}</b>.
      </p>
      <input
        class="field"
        data-testid="confirm-name"
        aria-label="Name of the topic"
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

const pauses = {
  both: { text: "Producing and consuming", operations: ["produce", "consume"] },
  produce: { text: "Producing: the topic accepts no messages", operations: ["produce"] },
  consume: { text: "Consuming: no message is delivered", operations: ["consume"] },
} as const;

function Pause({ board, topic }: { board: Board; topic: string }) {
  const what = useSignal<keyof typeof pauses>("both");
  const act = async () => {
    await board.call((signal) => board.client.pause(topic, pauses[what.value].operations, signal));
    board.wake();
  };
  return (
    <Dialog title={`Pause ${topic}?`} yes="Pause" act={act} closed={closed}>
      <Radios
        legend="What to pause"
        hidden
        name="pause"
        value={what.value}
        options={(["both", "produce", "consume"] as const).map((id) => [id, pauses[id].text])}
        change={(id) => {
          what.value = id;
        }}
      />
      <p>Deliveries in flight can still be settled.</p>
    </Dialog>
  );
}

function NewTopic({ board }: { board: Board }) {
  const name = useSignal("");
  const partitions = useSignal("8");
  const attempts = useSignal("16");
  const strict = useSignal(false);
  const right = namePattern.test(name.value) && !name.value.startsWith("__");
  const act = async () => {
    const topic = {
      name: name.value,
      partitions: Number(partitions.value),
      maxAttempts: Number(attempts.value),
      strictOrder: strict.value,
    };
    await board.call((signal) => board.client.createTopic(topic, signal));
    board.wake();
    go({ topic: topic.name, view: "overview" });
  };
  return (
    <Dialog title="New topic" yes="Create" ready={right} act={act} closed={closed}>
      <Field label="Name" id="name" value={name} hint="At most 64 letters, digits, - and _" />
      <div class="field-row">
        <Field label="Partitions" id="partitions" value={partitions} number />
        <Field label="Attempts" id="attempts" value={attempts} number />
      </div>
      <Check
        testid="field-strict"
        checked={strict.value}
        change={(checked) => {
          strict.value = checked;
        }}
      >
        <span>Strict order: one message of a key at a time, also during retries</span>
      </Check>
    </Dialog>
  );
}

function NewGroup({ board, topic }: { board: Board; topic: string }) {
  const name = useSignal("");
  const start = useSignal<"oldest" | "newest">("oldest");
  const act = async () => {
    await board.call((signal) => board.client.createGroup(topic, name.value, start.value === "newest", signal));
    board.wake();
  };
  const ready = namePattern.test(name.value);
  return (
    <Dialog title={`New consumer group of ${topic}`} yes="Create" ready={ready} act={act} closed={closed}>
      <Field label="Name" id="name" value={name} hint="At most 64 letters, digits, - and _" />
      <Radios
        legend="Start"
        name="start"
        value={start.value}
        options={[
          ["oldest", "at the oldest stored message"],
          ["newest", "after the newest message"],
        ]}
        change={(at) => {
          start.value = at;
        }}
      />
    </Dialog>
  );
}
