import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { LinkButton } from "../../ui/banner";
import { Check } from "../../ui/form";
import { count, dayAndTime, duration, size } from "../../ui/format";
import type { Board, TopicView } from "../model/board";
import { Letters } from "../model/letters";
import { oneLine, preview } from "../model/payload";
import type { Letter } from "../model/types";
import { openDialog } from "./dialogs";
import { GroupChoice } from "./groupchoice";

/** LettersPart shows the dead letters of a topic and the operations on them. */
export function LettersPart({ board, view }: { board: Board; view: TopicView }) {
  const group = useSignal("");
  const { name, groups } = view.topic;
  const letters = useMemo(() => new Letters(board, name, group.value), [board, name, group.value]);
  useEffect(() => {
    void letters.load();
    return () => letters.close();
  }, [letters]);
  const { stats } = view;
  useEffect(() => {
    if (stats) letters.counted(stats.total.deadLetters);
  }, [letters, stats]);
  return (
    <section class="part" aria-label="Dead letters">
      <div class="part-head">
        {groups.length > 1 && (
          <GroupChoice
            groups={groups}
            group={group.value}
            all
            choose={(chosen) => {
              group.value = chosen;
            }}
          />
        )}
        <Actions letters={letters} />
      </div>
      <Notes letters={letters} />
      <List letters={letters} />
    </section>
  );
}

function Actions({ letters }: { letters: Letters }) {
  const chosen = [...letters.selected.value];
  const busy = letters.work.value !== null;
  const none = letters.list.value.length === 0;
  const some = chosen.length > 0;
  const of = letters.group ? `of ${letters.group}` : "of the topic";
  return (
    <div class="letters-actions">
      <Check
        testid="select-all"
        checked={letters.all.value}
        indeterminate={some && !letters.all.value}
        disabled={none || busy}
        change={(checked) => letters.selectAll(checked)}
      >
        <span data-testid="selected">{some ? `${count(chosen.length)} selected` : "Select shown"}</span>
      </Check>
      <button
        type="button"
        class="small"
        data-testid="replay"
        disabled={none || busy}
        onClick={() =>
          some
            ? void letters.replay(chosen)
            : openDialog({
                kind: "confirm",
                title: `Replay all dead letters ${of}?`,
                text: "Each is delivered to its group again, and its attempts start again at 1.",
                yes: "Replay all",
                act: () => letters.replay(null),
              })
        }
      >
        {some ? "Replay selected" : "Replay all…"}
      </button>
      <button
        type="button"
        class="small danger"
        data-testid="purge"
        disabled={none || busy}
        onClick={() =>
          openDialog({
            kind: "purge",
            topic: letters.topic,
            what: some ? `${count(chosen.length)} selected` : `all dead letters ${of}`,
            act: (typed) => letters.purge(some ? chosen : null, typed),
          })
        }
      >
        {some ? "Purge selected…" : "Purge all…"}
      </button>
    </div>
  );
}

function Notes({ letters }: { letters: Letters }) {
  const work = letters.work.value;
  const doing = work && `${work.what === "replay" ? "Replaying" : "Purging"}… ${count(work.done)}`;
  return (
    <div class="notes">
      <p role="status" class="quiet" data-testid="letters-note">
        {doing || letters.note.value}
      </p>
      {letters.stale.value && (
        <p class="quiet" data-testid="stale">
          The dead letters have changed.{" "}
          <LinkButton testid="reload" act={() => void letters.load()}>
            Load them again
          </LinkButton>
        </p>
      )}
      {letters.error.value && (
        <p class="problem" role="alert" data-testid="letters-error">
          {letters.error.value} <LinkButton act={() => void letters.load()}>Try again</LinkButton>
        </p>
      )}
    </div>
  );
}

function List({ letters }: { letters: Letters }) {
  const list = letters.list.value;
  if (list.length === 0) {
    if (!letters.loaded.value) return letters.loading.value ? <p class="quiet">Loading…</p> : null;
    return (
      <p class="quiet" data-testid="no-letters">
        No dead letters. A message becomes one when its attempts run out, or when a consumer rejects it permanently.
      </p>
    );
  }
  return (
    <>
      <ul class="letters" data-testid="letters">
        {list.map((letter) => (
          <Row key={letter.id} letters={letters} letter={letter} />
        ))}
      </ul>
      {letters.more.value && (
        <button type="button" data-testid="older" disabled={letters.loading} onClick={() => void letters.loadMore()}>
          Show older
        </button>
      )}
    </>
  );
}

function Row({ letters, letter }: { letters: Letters; letter: Letter }) {
  const { id, reason, code, attempts, deadLetterTime, partition, group, payload, key } = letter;
  const open = letters.open.value.has(id);
  const selected = letters.selected.value.has(id);
  const line = useMemo(() => oneLine(payload), [payload]);
  return (
    <li class="letter" data-testid="letter" data-id={id} data-open={open}>
      <input
        type="checkbox"
        aria-label={`Select dead letter ${id}`}
        checked={selected}
        onChange={(event) => letters.select(id, event.currentTarget.checked)}
      />
      <button
        type="button"
        class="letter-head"
        aria-expanded={open}
        data-testid="unfold"
        onClick={() => letters.unfold(id, !open)}
      >
        <span class="letter-line" dir="auto">
          {line}
        </span>
        <span class="letter-why">
          {code && <code>{code}</code>} <span dir="auto">{reason || "no reason given"}</span>
        </span>
        <span class="letter-facts">
          {group} · partition {partition}
          {key && (
            <>
              {" · key "}
              <bdi>{key}</bdi>
            </>
          )}{" "}
          · {attempts === 1 ? "1 attempt" : `${count(attempts)} attempts`} ·{" "}
          <time dateTime={deadLetterTime.toISOString()} title={dayAndTime(deadLetterTime)}>
            {duration(Math.max(0, Date.now() - deadLetterTime.getTime()))} ago
          </time>
        </span>
      </button>
      <button
        type="button"
        class="small"
        data-testid="replay-one"
        aria-label={`Replay dead letter ${id}`}
        disabled={letters.work.value !== null}
        onClick={() => void letters.replay([id])}
      >
        Replay
      </button>
      {open && <Content letter={letter} />}
    </li>
  );
}

function Content({ letter }: { letter: Letter }) {
  const whole = useSignal(false);
  const { payload, headers, messageId, id, key, produceTime, deadLetterTime } = letter;
  const shown = preview(payload, whole.value ? payload.length : undefined);
  const facts: [string, string][] = [
    ["Message", messageId],
    ["Dead letter", id],
    ["Key", key || "none"],
    ["Produced", dayAndTime(produceTime)],
    ["Dead-lettered", dayAndTime(deadLetterTime)],
    ...Object.entries(headers).sort(([a], [b]) => (a < b ? -1 : 1)),
  ];
  return (
    <div class="letter-content">
      <dl class="facts">
        {facts.map(([name, value], i) => (
          <div key={name} class={i < 5 ? undefined : "header"}>
            <dt>{name}</dt>
            <dd dir="auto">{value}</dd>
          </div>
        ))}
      </dl>
      <p class="quiet">
        Payload, {size(payload.length)}
        {shown.kind === "hex" ? ", not text" : ""}
      </p>
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
    </div>
  );
}
