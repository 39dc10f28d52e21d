import { useSignal } from "@preact/signals";
import type { Session, SignedInPage } from "../connection/session";
import { Dialog } from "./dialog";
import { Icon } from "./icon";
import { userName } from "./name";

/** SignOutButton signs the user out, after a confirmation. */
export function SignOutButton({ session }: { session: Session<SignedInPage> }) {
  const asking = useSignal(false);
  const closed = () => {
    asking.value = false;
  };
  return (
    <>
      <button
        type="button"
        class="icon-button"
        data-testid="sign-out"
        aria-label="Sign out"
        title="Sign out"
        onClick={() => {
          asking.value = true;
        }}
      >
        <Icon name="leave" />
      </button>
      {asking.value && (
        <Dialog
          title="Sign out?"
          yes="Sign out"
          danger
          testids={{ yes: "confirm-sign-out", no: "cancel-sign-out" }}
          act={() => session.signOut()}
          closed={closed}
        >
          <p>
            This revokes the token of <b dir="auto">{userName(session.user)}</b>: this login ends here, in all other
            tabs, and wherever else it is used. Drafts and messages that were not sent yet are deleted from this
            browser.
          </p>
        </Dialog>
      )}
    </>
  );
}
