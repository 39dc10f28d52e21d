import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { failure } from "../connection/failure";

/**
 * Dialog is a modal form. Confirming calls act: the dialog closes when act resolves, and shows the
 * failure when act rejects. Until then the button that confirms is disabled. Without act the dialog
 * only has a button to close it.
 */
export function Dialog(props: {
  title: string;
  /** The label of the button that confirms. The default is `OK`. */
  yes?: string;
  /** The label of the button that closes. The default is `Cancel`, or `Close` without act. */
  no?: string;
  act?: () => Promise<void>;
  /** True if confirming deletes something. The two buttons are then at opposite ends. */
  danger?: boolean;
  /** True for a form with two columns of fields. */
  wide?: boolean;
  /** True if the form can be confirmed. The default is true. */
  ready?: boolean;
  /** The test ids of the two buttons. */
  testids?: { yes: string; no: string };
  /** Called after the dialog closed, for any reason. It may move the focus. */
  closed: () => void;
  children: ComponentChildren;
}) {
  const {
    title,
    act,
    yes = "OK",
    no = act ? "Cancel" : "Close",
    danger = false,
    wide = false,
    ready = true,
    closed,
    children,
  } = props;
  const testids = props.testids ?? { yes: "confirm", no: "cancel" };
  const dialog = useRef<HTMLDialogElement>(null);
  const problem = useSignal("");
  const busy = useSignal(false);
  useLayoutEffect(() => dialog.current?.showModal(), []);
  const close = () => dialog.current?.close();
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    if (!act || !ready || busy.value) return;
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
    <dialog ref={dialog} class={wide ? "dialog wide" : "dialog"} aria-labelledby="dialog-title" onClose={closed}>
      <form onSubmit={submit}>
        <h2 id="dialog-title">{title}</h2>
        {children}
        <p class="problem" role="alert" data-testid="dialog-problem">
          {problem}
        </p>
        <div class="dialog-buttons" data-danger={danger}>
          <button type="button" data-testid={testids.no} onClick={close}>
            {no}
          </button>
          {act && (
            <button
              type="submit"
              class={danger ? "danger" : "primary"}
              data-testid={testids.yes}
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
