import { computed, signal } from "@preact/signals";
import type { TopicView } from "../model/board";

const text = signal("");
const words = computed(() => text.value.trim().toLowerCase().split(/\s+/).filter(Boolean));

/** filtered returns the topics whose names contain each word of the filter. */
export function filtered(topics: readonly TopicView[]): readonly TopicView[] {
  return topics.filter(({ topic }) => words.value.every((word) => topic.name.toLowerCase().includes(word)));
}

/** Filter is the field that filters the topics, in the sidebar and in the table of all topics. */
export function Filter() {
  return (
    <input
      type="search"
      class="field small-field"
      data-testid="filter"
      aria-label="Filter topics"
      placeholder="Filter topics"
      autocomplete="off"
      autocapitalize="none"
      spellcheck={false}
      value={text}
      onInput={(event) => {
        text.value = event.currentTarget.value;
      }}
    />
  );
}
