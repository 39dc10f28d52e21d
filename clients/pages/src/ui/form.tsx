import type { Signal } from "@preact/signals";
import type { ComponentChildren } from "preact";

/**
 * Field is a one-line text field with its label. number restricts it to up to four digits, long
 * allows more than 64 characters.
 */
export function Field(props: {
  label: string;
  id: string;
  value: Signal<string>;
  hint?: string;
  number?: boolean;
  optional?: boolean;
  long?: boolean;
}) {
  const { label, id, value, hint, number = false, optional = false, long = false } = props;
  return (
    <div class="labelled">
      <label for={`field-${id}`}>{label}</label>
      <input
        id={`field-${id}`}
        class="field"
        data-testid={`field-${id}`}
        inputMode={number ? "numeric" : "text"}
        pattern={number ? "[0-9]{1,4}" : undefined}
        required={!optional}
        maxLength={long ? 4_096 : 64}
        autocomplete="off"
        autocapitalize="none"
        spellcheck={false}
        value={value}
        onInput={(event) => {
          value.value = event.currentTarget.value;
        }}
      />
      {hint && <small>{hint}</small>}
    </div>
  );
}

/** Check is a checkbox with its label. */
export function Check(props: {
  testid: string;
  checked: boolean;
  indeterminate?: boolean;
  disabled?: boolean;
  change: (checked: boolean) => void;
  children: ComponentChildren;
}) {
  const { testid, checked, indeterminate = false, disabled = false, change, children } = props;
  return (
    <label class="choice check">
      <input
        type="checkbox"
        data-testid={testid}
        checked={checked}
        indeterminate={indeterminate}
        disabled={disabled}
        onChange={(event) => change(event.currentTarget.checked)}
      />
      {children}
    </label>
  );
}

/** Option is a value to choose and its text. */
export type Option<T extends string> = readonly [value: T, text: string];

/** Select is a list to choose one value from, with its label beside it. */
export function Select<T extends string>(props: {
  label: string;
  testid: string;
  value: T;
  options: readonly Option<T>[];
  change: (value: T) => void;
}) {
  const { label, testid, value, options, change } = props;
  return (
    <label class="choice">
      <span>{label}</span>
      <select data-testid={testid} value={value} onChange={(event) => change(event.currentTarget.value as T)}>
        {options.map(([one, text]) => (
          <option key={one} value={one}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** Radios is a group of radio buttons. hidden shows the legend to screen readers only. */
export function Radios<T extends string>(props: {
  legend: string;
  hidden?: boolean;
  name: string;
  value: T;
  options: readonly Option<T>[];
  change: (value: T) => void;
}) {
  const { legend, hidden = false, name, value, options, change } = props;
  return (
    <fieldset class="choices">
      <legend class={hidden ? "hidden" : undefined}>{legend}</legend>
      {options.map(([one, text]) => (
        <label key={one}>
          <input
            type="radio"
            name={name}
            data-testid={`${name}-${one}`}
            checked={value === one}
            onChange={() => change(one)}
          />
          {text}
        </label>
      ))}
    </fieldset>
  );
}
