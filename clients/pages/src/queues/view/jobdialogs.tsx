import { useSignal } from "@preact/signals";
import { Dialog } from "../../ui/dialog";
import { Field } from "../../ui/form";
import { inCalls, outcomeText, producing } from "../model/actions";
import type { Board } from "../model/board";
import { parseDuration } from "../model/duration";
import { closed, type JobsQuestion } from "./dialogs";

const messages = (n: number) => (n === 1 ? "the message" : `${n} messages`);

/** CancelJobs asks whether to cancel messages. */
export function CancelJobs({ board, topic, ids, done }: JobsQuestion & { board: Board }) {
  const act = async () => {
    const call = (signal: AbortSignal) => inCalls(ids, (some) => board.client.cancel(topic, some, signal));
    done(outcomeText("Cancelled", await producing(topic, board.change(call))));
  };
  return (
    <Dialog title={`Cancel ${messages(ids.length)}?`} yes="Cancel them" no="Keep" danger act={act} closed={closed}>
      <p>In every group that has not settled it, a cancelled message is not handled. Running ones are not cancelled.</p>
    </Dialog>
  );
}

/** RescheduleJobs asks when scheduled messages are to be due. */
export function RescheduleJobs({ board, topic, ids, done }: JobsQuestion & { board: Board }) {
  const delay = useSignal("0");
  const ms = parseDuration(delay.value);
  const act = async () => {
    const call = (signal: AbortSignal) => inCalls(ids, (some) => board.client.reschedule(topic, some, ms ?? 0, signal));
    done(outcomeText("Rescheduled", await producing(topic, board.change(call))));
  };
  const title = `Reschedule ${messages(ids.length)}`;
  return (
    <Dialog title={title} yes="Reschedule" ready={ms !== null} act={act} closed={closed}>
      <Field label="Due in" id="delay" value={delay} hint="For example 30s, 10m, 1h 30m. 0 means now." />
    </Dialog>
  );
}
