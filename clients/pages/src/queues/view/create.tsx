import { useSignal } from "@preact/signals";
import { Dialog } from "../../ui/dialog";
import { Field, Radios } from "../../ui/form";
import { producing } from "../model/actions";
import type { Board } from "../model/board";
import { parseDuration } from "../model/duration";
import type { Order } from "../model/types";
import { namePattern, routeTo } from "../route";
import { go } from "../session";
import { closed } from "./dialogs";

const nameHint = "At most 64 letters, digits, - and _";

/** orderOptions are the orders of delivery with their texts. */
export const orderOptions = [
  ["key", "by key, except during retries"],
  ["strict", "strictly by key: one message of a key at a time"],
  ["none", "none"],
] as const satisfies readonly (readonly [Order, string])[];

/** NewTopic creates a topic. */
export function NewTopic({ board }: { board: Board }) {
  const name = useSignal("");
  const partitions = useSignal("8");
  const right = namePattern.test(name.value) && !name.value.startsWith("__");
  const act = async () => {
    const topic = { name: name.value, partitions: Number(partitions.value) };
    await board.change((signal) => board.client.createTopic(topic, signal));
    go(routeTo(topic.name));
  };
  return (
    <Dialog title="New topic" yes="Create" ready={right} act={act} closed={closed}>
      <Field label="Name" id="name" value={name} hint={nameHint} />
      <Field label="Partitions" id="partitions" value={partitions} number hint="1 to 256. More can be added later." />
    </Dialog>
  );
}

/** NewGroup creates a consumer group of a topic. */
export function NewGroup({ board, topic }: { board: Board; topic: string }) {
  const name = useSignal("");
  const attempts = useSignal("16");
  const mode = useSignal<"shared" | "exclusive">("shared");
  const order = useSignal<Order>("key");
  const start = useSignal<"oldest" | "newest">("oldest");
  const act = async () => {
    const group = {
      name: name.value,
      exclusive: mode.value === "exclusive",
      order: order.value,
      maxAttempts: Number(attempts.value),
      fromEnd: start.value === "newest",
    };
    await board.change((signal) => board.client.createGroup(topic, group, signal));
  };
  return (
    <Dialog
      title={`New consumer group of ${topic}`}
      yes="Create"
      ready={namePattern.test(name.value)}
      act={act}
      closed={closed}
    >
      <Field label="Name" id="name" value={name} hint={nameHint} />
      <Field label="Attempts" id="attempts" value={attempts} number hint="Then a message becomes a dead letter." />
      <Radios
        legend="Who gets the messages"
        name="mode"
        value={mode.value}
        options={[
          ["shared", "any consumer"],
          ["exclusive", "one consumer for each partition"],
        ]}
        change={(to) => {
          mode.value = to;
        }}
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

/** NewMessage produces a message to a topic. */
export function NewMessage({ board, topic }: { board: Board; topic: string }) {
  const key = useSignal("");
  const payload = useSignal("");
  const delay = useSignal("0");
  const ms = parseDuration(delay.value);
  const act = async () => {
    const message = { key: key.value, payload: payload.value, delay: ms ?? 0 };
    await producing(
      topic,
      board.change((signal) => board.client.produce(topic, message, signal)),
    );
  };
  return (
    <Dialog title={`New message to ${topic}`} yes="Produce" ready={ms !== null} act={act} closed={closed}>
      <div class="labelled">
        <label for="field-payload">Payload</label>
        <textarea
          id="field-payload"
          class="field payload-field"
          data-testid="field-payload"
          rows={5}
          autocomplete="off"
          autocapitalize="none"
          spellcheck={false}
          value={payload}
          onInput={(event) => {
            payload.value = event.currentTarget.value;
          }}
        />
      </div>
      <div class="field-row">
        <Field label="Key" id="key" value={key} optional />
        <Field label="Due in" id="delay" value={delay} />
      </div>
      <p>The token must allow to produce to the topic.</p>
    </Dialog>
  );
}
