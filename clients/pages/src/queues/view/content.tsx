import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { LinkButton } from "../../ui/banner";
import { CopyButton } from "../../ui/copy";
import { size } from "../../ui/format";
import { hexDump, preview } from "../model/payload";

/** Fact is a name and what is known under it. */
export type Fact = readonly [name: string, value: ComponentChildren];

/** Facts lists facts. mono sets the names in the font of code. */
export function Facts({ facts, mono = false }: { facts: readonly Fact[]; mono?: boolean }) {
  return (
    <dl class={mono ? "facts mono" : "facts"}>
      {facts.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd dir="auto">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** Headers lists a message's headers. It shows nothing if there are none. */
export function Headers({ headers }: { headers: Readonly<Record<string, string>> }) {
  const sorted = Object.entries(headers).sort(([a], [b]) => (a < b ? -1 : 1));
  if (sorted.length === 0) return null;
  return (
    <section class="message-part" data-testid="headers">
      <h3>Headers</h3>
      <Facts facts={sorted} mono />
    </section>
  );
}

/** Payload shows a message's payload as text or as a hex dump, with a button to copy it. */
export function Payload({ payload }: { payload: Uint8Array }) {
  const whole = useSignal(false);
  const shown = preview(payload, whole.value ? payload.length : undefined);
  const all = () => (shown.kind === "hex" ? hexDump(payload) : new TextDecoder().decode(payload));
  return (
    <section class="message-part">
      <h3>
        Payload{" "}
        <span class="quiet">
          {size(payload.length)}
          {shown.kind === "hex" ? ", not text" : ""}
        </span>
        {shown.kind !== "empty" && <CopyButton label="Copy the payload" testid="copy-payload" text={all} />}
      </h3>
      {shown.kind !== "empty" && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: keyboard users scroll it
        <pre class="payload" data-testid="payload" data-kind={shown.kind} dir="auto" tabIndex={0}>
          {shown.text}
        </pre>
      )}
      {shown.cut && (
        <LinkButton
          act={() => {
            whole.value = true;
          }}
        >
          Show all
        </LinkButton>
      )}
    </section>
  );
}
