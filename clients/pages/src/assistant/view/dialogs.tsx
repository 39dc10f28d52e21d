import { useSignal } from "@preact/signals";
import { Dialog } from "../../ui/dialog";
import { bytes } from "../../ui/field";
import type { Assistant } from "../model/assistant";
import { go } from "../session";
import { focusComposer, type Question, question, stopEditing } from "./ui";

const maxTitleBytes = 256;

/** Dialogs shows the open dialog, if there is one. */
export function Dialogs({ assistant }: { assistant: Assistant }) {
  const asked = question.value;
  switch (asked?.kind) {
    case "rename":
      return <Rename key={asked.id} assistant={assistant} asked={asked} />;
    case "delete":
      return <Delete key={asked.id} assistant={assistant} id={asked.id} title={asked.title} />;
    case "again":
      return <AskAgain key={asked.prompt.msgId} assistant={assistant} asked={asked} />;
    default:
      return null;
  }
}

function closed(): void {
  question.value = null;
  focusComposer();
}

function Rename({ assistant, asked }: { assistant: Assistant; asked: Question & { kind: "rename" | "delete" } }) {
  const title = useSignal(asked.title);
  return (
    <Dialog
      title="Rename the conversation"
      yes="Rename"
      ready={bytes(title.value.trim()) <= maxTitleBytes}
      act={() => assistant.rename(asked.id, title.value.trim())}
      closed={closed}
    >
      <div class="labelled">
        <label for="field-title">Title</label>
        <input
          id="field-title"
          class="field"
          data-testid="field-title"
          dir="auto"
          autocomplete="off"
          value={title}
          onInput={(event) => {
            title.value = event.currentTarget.value;
          }}
        />
        {bytes(title.value.trim()) > maxTitleBytes && <small>At most {maxTitleBytes} bytes.</small>}
      </div>
    </Dialog>
  );
}

function Delete({ assistant, id, title }: { assistant: Assistant; id: string; title: string }) {
  const act = async () => {
    await assistant.remove(id);
    go({ show: "list" });
  };
  return (
    <Dialog title="Delete this conversation?" yes="Delete" no="Keep it" danger act={act} closed={closed}>
      {title && <blockquote dir="auto">{title}</blockquote>}
      <p>All its messages are deleted, forever.</p>
    </Dialog>
  );
}

function AskAgain({ assistant, asked }: { assistant: Assistant; asked: Question & { kind: "again" } }) {
  const { prompt, text, later } = asked;
  const act = async () => {
    if (await assistant.askAgain(prompt, text)) stopEditing();
  };
  return (
    <Dialog title="Ask again from here?" yes="Ask again" danger act={act} closed={closed}>
      <p>
        {later === 1 ? "Your message after this one is deleted" : `Your ${later} messages after this one are deleted`},
        with the answers.
      </p>
    </Dialog>
  );
}
