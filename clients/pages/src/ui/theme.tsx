import { effect, signal } from "@preact/signals";
import { store, stored } from "../connection/storage";
import { Icon } from "./icon";

type Theme = "light" | "dark";

const key = "parley.theme";
const preference = matchMedia("(prefers-color-scheme: dark)");
const preferred = signal<Theme>(preference.matches ? "dark" : "light");
const chosen = signal<Theme | null>(null);

/**
 * followTheme applies the theme that the user chose, or else that of their system, and follows
 * changes of both. Call it once.
 */
export function followTheme(): void {
  const kept = stored("localStorage", key);
  if (kept === "light" || kept === "dark") chosen.value = kept;
  preference.addEventListener("change", () => {
    preferred.value = preference.matches ? "dark" : "light";
  });
  effect(() => {
    document.documentElement.dataset.theme = chosen.value ?? preferred.value;
  });
}

/** ThemeButton switches between the dark and the light theme, and stores the choice. */
export function ThemeButton() {
  const other = (chosen.value ?? preferred.value) === "dark" ? "light" : "dark";
  const toggle = () => {
    chosen.value = other;
    store("localStorage", key, other);
  };
  return (
    <button
      type="button"
      class="icon-button"
      data-testid="theme"
      aria-label={`Switch to the ${other} theme`}
      onClick={toggle}
    >
      <Icon name={other === "light" ? "sun" : "moon"} />
    </button>
  );
}
