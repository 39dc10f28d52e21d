import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { failure } from "../../chat/model/types";
import type { Board } from "../model/board";
import type { Operation } from "../model/types";
import { namePattern } from "../place";
import { go } from "../session";

type Question =
  | { kind: "topic" }
  | { kind: "group"; topic: string }
  | { kind: "pause"; topic: string }
  | { kind: "purge"; topic: string; what: string; act: (typed: string) => Promise<void> }
  | { kind: "sure"; title: string; text: string; yes: string; act: () => Promise<void> }
  | { kind: "problem"; text: string };

const asked = signal<Question | null>(null);

/** Opens the dialog that asks this. */
export function ask(question: Question): void {
  asked.value = question;
}

/** The dialog that is open, if one is. */
export function Dialogs({ board }: { board: Board }) {
  const question = asked.value;
  switch (question?.kind) {
    case "topic":
      return <NewTopic board={board} />;
    case "group":
      return <NewGroup board={board} topic={question.topic} />;
    case "pause":
      return <Pause board={board} topic={question.topic} />;
    case "purge":
      return <Purge {...question} />;
    case "sure": {
      const { title, text, yes, act } = question;
      return (
        <Dialog title={title} yes={yes} act={() => later(act)}>
          <p>{text}</p>
        </Dialog>
      );
    }
    case "problem":
      return (
        <Dialog title="That did not work" yes="" act={later}>
          <p>{question.text}</p>
        </Dialog>
      );
    default:
      return null;
  }
}

// What reports for itself goes on after the dialog is closed.
async function later(act?: () => Promise<void>): Promise<void> {
  void act?.();
}

// A form that closes once act is through; what act throws is shown in it.
function Dialog(props: {
  title: string;
  yes: string;
  act: () => Promise<void>;
  danger?: boolean;
  ready?: boolean;
  children: ComponentChildren;
}) {
  const { title, yes, act, danger = false, ready = true, children } = props;
  const dialog = useRef<HTMLDialogElement>(null);
  const problem = useSignal("");
  const busy = useSignal(false);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  const close = () => dialog.current?.close();
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!ready || busy.value) return;
    busy.value = true;
    problem.value = "";
    try {
      await act();
      close();
    } catch (cause) {
      problem.value = failure(cause).text;
    } finally {
      busy.value = false;
    }
  };
  return (
    <dialog
      ref={dialog}
      class="question"
      aria-labelledby="dialog-title"
      onClose={() => {
        asked.value = null;
      }}
    >
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        <p class="problem" role="alert" data-testid="dialog-problem">
          {problem}
        </p>
        <div class="question-buttons">
          <button type="button" data-testid="cancel" onClick={close}>
            {yes ? "Cancel" : "Close"}
          </button>
          {yes && (
            <button
              type="submit"
              class={danger ? "danger" : "primary"}
              data-testid="confirm"
              disabled={!ready || busy.value}
            >
              {yes}
            </button>
          )}
        </div>
      </form>
    </dialog>
  );
}

function Purge({ topic, what, act }: { topic: string; what: string; act: (typed: string) => Promise<void> }) {
  const typed = useSignal("");
  return (
    <Dialog
      title="Purge dead letters?"
      yes="Purge"
      danger
      ready={typed.value === topic}
      act={() => later(() => act(typed.value))}
    >
      <p>
        This removes {what} for good. To go on, type the topic's name, <b>{topic}</b>.
      </p>
      <input
        class="field"
        data-testid="confirm-name"
        aria-label="The topic's name"
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

function Pause({ board, topic }: { board: Board; topic: string }) {
  const what = useSignal("both");
  const choices: [id: string, name: string, operations: Operation[]][] = [
    ["both", "Intake and delivery", ["produce", "consume"]],
    ["produce", "Intake: no message can be produced or scheduled", ["produce"]],
    ["consume", "Delivery: no message is delivered", ["consume"]],
  ];
  const act = async () => {
    const operations = choices.find(([id]) => id === what.value)?.[2] ?? [];
    await board.call((signal) => board.client.pause(topic, operations, signal));
    board.wake();
  };
  return (
    <Dialog title={`Pause ${topic}?`} yes="Pause" act={act}>
      <fieldset class="choices">
        <legend class="hidden">What to pause</legend>
        {choices.map(([id, name]) => (
          <label key={id}>
            <input
              type="radio"
              name="what"
              data-testid={`pause-${id}`}
              checked={what.value === id}
              onChange={() => {
                what.value = id;
              }}
            />
            {name}
          </label>
        ))}
      </fieldset>
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
    <Dialog title="New topic" yes="Create" ready={right} act={act}>
      <Field label="Name" id="name" value={name} hint="Letters, digits, - and _, at most 64" />
      <div class="field-row">
        <Field label="Partitions" id="partitions" value={partitions} number />
        <Field label="Attempts" id="attempts" value={attempts} number />
      </div>
      <label class="choice check">
        <input
          type="checkbox"
          data-testid="field-strict"
          checked={strict}
          onChange={(event) => {
            strict.value = event.currentTarget.checked;
          }}
        />
        <span>Strict order: one message of a key at a time, also over retries</span>
      </label>
    </Dialog>
  );
}

function NewGroup({ board, topic }: { board: Board; topic: string }) {
  const name = useSignal("");
  const end = useSignal(false);
  const act = async () => {
    await board.call((signal) => board.client.createGroup(topic, name.value, end.value, signal));
    board.wake();
  };
  return (
    <Dialog title={`New consumer group of ${topic}`} yes="Create" ready={namePattern.test(name.value)} act={act}>
      <Field label="Name" id="name" value={name} hint="Letters, digits, - and _, at most 64" />
      <fieldset class="choices">
        <legend>It begins</legend>
        {[false, true].map((one) => (
          <label key={String(one)}>
            <input
              type="radio"
              name="start"
              checked={end.value === one}
              onChange={() => {
                end.value = one;
              }}
            />
            {one ? "after the newest message" : "at the oldest message that is kept"}
          </label>
        ))}
      </fieldset>
    </Dialog>
  );
}

function Field(props: { label: string; id: string; value: { value: string }; hint?: string; number?: boolean }) {
  const { label, id, value, hint, number } = props;
  return (
    <div class="labelled">
      <label for={`field-${id}`}>{label}</label>
      <input
        id={`field-${id}`}
        class="field"
        data-testid={`field-${id}`}
        inputMode={number ? "numeric" : "text"}
        pattern={number ? "[0-9]{1,4}" : undefined}
        required
        maxLength={64}
        autocomplete="off"
        autocapitalize="none"
        spellcheck={false}
        value={value.value}
        onInput={(event) => {
          value.value = event.currentTarget.value;
        }}
      />
      {hint && <small>{hint}</small>}
    </div>
  );
}
