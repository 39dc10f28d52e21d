import type { Signal } from "@preact/signals";
import { TokenForm } from "./tokenform";

/** Tells why a token of the address bar was not taken, and asks for another one while the one at hand still serves. */
export function KeepToken(props: { me: string; reason: Signal<string>; enter: (token: string) => boolean }) {
  const { me, reason, enter } = props;
  return (
    <div class="strip warn">
      <TokenForm reason={reason.value} enter={enter} />
      <button
        type="button"
        class="link"
        data-testid="keep-token"
        onClick={() => {
          reason.value = "";
        }}
      >
        Go on as {me}
      </button>
    </div>
  );
}
