import { type Signal, useSignal } from "@preact/signals";
import { Dialog } from "../../ui/dialog";
import { Check, Field, Radios } from "../../ui/form";
import { count } from "../../ui/format";
import type { Board } from "../model/board";
import { parseDuration, writeDuration } from "../model/duration";
import type { Group, GroupSettings, Order, Topic, TopicSettings } from "../model/types";
import { orderOptions } from "./create";
import { closed } from "./dialogs";

// The settings that a text field can edit, and whether they are durations.
type Kind = "number" | "duration";

interface Edited<S> {
  readonly name: keyof S & string;
  readonly label: string;
  readonly kind: Kind;
  readonly hint?: string;
}

const topicFields: readonly Edited<TopicSettings>[] = [
  { name: "partitions", label: "Partitions", kind: "number", hint: "The number can only grow" },
  { name: "maxMessages", label: "Limit per partition", kind: "number", hint: "Unsettled messages; 0: none" },
  { name: "maxAge", label: "Keep settled for", kind: "duration", hint: "0: not at all" },
  { name: "keptMessages", label: "Keep at most", kind: "number", hint: "Per partition; 0: no limit" },
  { name: "deadLetterMaxAge", label: "Keep dead letters for", kind: "duration", hint: "0: forever" },
  { name: "maxDeadLetters", label: "Dead letters at most", kind: "number", hint: "Per partition; 0: 100,000" },
  { name: "idempotencyWindow", label: "Recognise repeats for", kind: "duration" },
];

const groupFields: readonly Edited<GroupSettings>[] = [
  { name: "maxAttempts", label: "Attempts", kind: "number" },
  { name: "ackTimeout", label: "Ack timeout", kind: "duration" },
  { name: "minBackoff", label: "First backoff", kind: "duration" },
  { name: "maxBackoff", label: "Longest backoff", kind: "duration" },
  { name: "handlerTimeout", label: "Handler timeout", kind: "duration" },
  { name: "maxRunTime", label: "Longest run", kind: "duration" },
  { name: "resumeGrace", label: "Resume grace", kind: "duration", hint: "Without a stream" },
];

function written(kind: Kind, value: unknown): string {
  return kind === "duration" ? writeDuration(Number(value)) : String(value);
}

function read(kind: Kind, text: string): number | null {
  if (kind === "duration") return parseDuration(text);
  return /^\d{1,10}$/.test(text.trim()) ? Number(text) : null;
}

interface Form {
  readonly texts: Signal<Readonly<Record<string, string>>>;
  /** Null while a field has no valid value. */
  readonly values: Readonly<Record<string, number>> | null;
}

function useForm<S extends object>(fields: readonly Edited<S>[], settings: S): Form {
  const texts = useSignal<Readonly<Record<string, string>>>(
    Object.fromEntries(fields.map(({ name, kind }) => [name, written(kind, settings[name])])),
  );
  const values: Record<string, number> = {};
  let valid = true;
  for (const { name, kind } of fields) {
    const value = read(kind, texts.value[name] ?? "");
    if (value === null) valid = false;
    else values[name] = value;
  }
  return { texts, values: valid ? values : null };
}

function Fields<S>({ fields, form }: { fields: readonly Edited<S>[]; form: Form }) {
  return (
    <div class="field-row">
      {fields.map(({ name, label, hint }) => (
        <div key={name} class="labelled">
          <label for={`field-${name}`}>{label}</label>
          <input
            id={`field-${name}`}
            class="field"
            data-testid={`field-${name}`}
            autocomplete="off"
            autocapitalize="none"
            spellcheck={false}
            value={form.texts.value[name]}
            onInput={(event) => {
              form.texts.value = { ...form.texts.value, [name]: event.currentTarget.value };
            }}
          />
          {hint && <small>{hint}</small>}
        </div>
      ))}
    </div>
  );
}

// Returns the names of the settings that differ.
function changes<S extends object>(before: S, after: S): (keyof S)[] {
  return (Object.keys(after) as (keyof S)[]).filter((name) => before[name] !== after[name]);
}

/** EditTopic changes the settings of a topic. */
export function EditTopic({ board, topic }: { board: Board; topic: Topic }) {
  const form = useForm(topicFields, topic);
  const drop = useSignal(topic.dropOldest);
  const act = async () => {
    const settings = { ...(form.values as unknown as TopicSettings), dropOldest: drop.value };
    const changed = changes<TopicSettings>(topic, settings);
    if (changed.length === 0) return;
    await board.change((signal) => board.client.updateTopic(topic.name, settings, changed, signal));
  };
  return (
    <Dialog title={`Settings of ${topic.name}`} yes="Save" ready={form.values !== null} act={act} closed={closed} wide>
      <Fields fields={topicFields} form={form} />
      <Check
        testid="field-drop"
        checked={drop.value}
        change={(on) => {
          drop.value = on;
        }}
      >
        <span>When a partition is full, remove its oldest messages</span>
      </Check>
    </Dialog>
  );
}

/** EditGroup changes the settings of a group. */
export function EditGroup({ board, topic, group }: { board: Board; topic: string; group: Group }) {
  const form = useForm(groupFields, group);
  const order = useSignal<Order>(group.order);
  const codes = useSignal(group.nonRetryable.join(" "));
  const act = async () => {
    const listed = codes.value.split(/[\s,]+/).filter(Boolean);
    const same = listed.join(" ") === group.nonRetryable.join(" ");
    const nonRetryable = same ? group.nonRetryable : listed;
    const settings = { ...(form.values as unknown as GroupSettings), order: order.value, nonRetryable };
    const changed = changes<GroupSettings>(group, settings);
    if (changed.length === 0) return;
    await board.change((signal) => board.client.updateGroup(topic, group.name, settings, changed, signal));
  };
  return (
    <Dialog
      title={`Settings of the group ${group.name}`}
      yes="Save"
      ready={form.values !== null}
      act={act}
      closed={closed}
      wide
    >
      <Fields fields={groupFields} form={form} />
      <Field
        label="Codes that are not retried"
        id="codes"
        value={codes}
        optional
        long
        hint="A failure with one of these codes makes the message a dead letter at once"
      />
      <Radios
        legend="Order"
        name="order"
        value={order.value}
        options={orderOptions}
        change={(to) => {
          order.value = to;
        }}
      />
    </Dialog>
  );
}

/** TrimTopic removes the oldest messages of a topic. done gets the result as a text. */
export function TrimTopic(props: { board: Board; topic: string; done: (text: string) => void }) {
  const { board, topic, done } = props;
  const keep = useSignal("0");
  const force = useSignal(false);
  const kept = read("number", keep.value);
  const act = async () => {
    const call = (signal: AbortSignal) => board.client.trim(topic, kept ?? 0, force.value, signal);
    const { removed, lost } = await board.change(call);
    const unsettled = lost > 0 ? ` ${count(lost)} of them were not settled, counted once for each group.` : "";
    done(`Removed ${removed === 1 ? "1 message" : `${count(removed)} messages`}.${unsettled}`);
  };
  return (
    <Dialog title={`Trim ${topic}?`} yes="Trim" danger ready={kept !== null} act={act} closed={closed}>
      <p>This removes the oldest messages of each partition.</p>
      <Field label="Keep the newest" id="keep" value={keep} hint="Messages of each partition" />
      <Check
        testid="field-force"
        checked={force.value}
        change={(on) => {
          force.value = on;
        }}
      >
        <span>Also remove messages that groups have not settled</span>
      </Check>
    </Dialog>
  );
}

/** MoveGroup moves a group to another position of its topic. */
export function MoveGroup({ board, topic, group }: { board: Board; topic: string; group: string }) {
  const to = useSignal<"beginning" | "end" | "time">("beginning");
  const time = useSignal("");
  const at = new Date(time.value);
  const ready = to.value !== "time" || !Number.isNaN(at.getTime());
  const act = () =>
    board.change((signal) => board.client.seekGroup(topic, group, to.value === "time" ? at : to.value, signal));
  return (
    <Dialog title={`Move the group ${group}?`} yes="Move" danger ready={ready} act={act} closed={closed}>
      <p>
        The group's deliveries and retries are dropped, and its counts begin anew. Messages before the position are not
        delivered, those after it are delivered again.
      </p>
      <Radios
        legend="Position"
        hidden
        name="move"
        value={to.value}
        options={[
          ["beginning", "the oldest stored message"],
          ["end", "after the newest message"],
          ["time", "a time"],
        ]}
        change={(position) => {
          to.value = position;
        }}
      />
      {to.value === "time" && (
        <input
          type="datetime-local"
          class="field"
          data-testid="field-time"
          aria-label="Time"
          value={time}
          onInput={(event) => {
            time.value = event.currentTarget.value;
          }}
        />
      )}
    </Dialog>
  );
}
