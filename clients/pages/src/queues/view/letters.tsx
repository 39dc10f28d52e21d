import { useSignal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { LinkButton } from "../../ui/banner";
import { Check } from "../../ui/form";
import { count, dayAndTime } from "../../ui/format";
import type { Board, TopicView } from "../model/board";
import { Letters } from "../model/letters";
import { oneLine } from "../model/payload";
import type { Letter } from "../model/types";
import { routeFragment, routeTo } from "../route";
import { Facts, Headers, Payload } from "./content";
import { openDialog } from "./dialogs";
import { GroupChoice } from "./groupchoice";
import { Since } from "./when";

/** LettersPart shows the dead letters of a topic and the operations on them. */
export function LettersPart({ board, view }: { board: Board; view: TopicView }) {
  const group = useSignal("");
  const code = useSignal("");
  const { name: topic, groups } = view.topic;
  const query = { topic, group: group.value, code: code.value };
  const letters = useMemo(() => new Letters(board, query), [board, topic, group.value, code.value]);
  useEffect(() => {
    void letters.load();
    return () => letters.close();
  }, [letters]);
  const { stats } = view;
  useEffect(() => {
    if (stats) letters.counted(stats.total.deadLetters);
  }, [letters, stats]);
  const codeOf = (chosen: string) => {
    code.value = chosen;
  };
  return (
    <section class="part" aria-label="Dead letters">
      <div class="part-head">
        <GroupChoice
          groups={groups}
          group={group.value}
          all
          choose={(chosen) => {
            group.value = chosen;
          }}
        />
        <CodeField code={code.value} choose={codeOf} />
      </div>
      <Actions letters={letters} total={stats?.total.deadLetters ?? null} />
      <Notes letters={letters} />
      <List letters={letters} choose={codeOf} />
    </section>
  );
}

// The letters with a code are loaded once the user confirms it or leaves the field.
function CodeField({ code, choose }: { code: string; choose: (code: string) => void }) {
  return (
    <form
      class="code-form"
      onSubmit={(event) => {
        event.preventDefault();
        choose(new FormData(event.currentTarget).get("code")?.toString().trim() ?? "");
      }}
    >
      <input
        type="search"
        name="code"
        class="field small-field key-field"
        data-testid="letter-code"
        aria-label="Only dead letters with this code"
        placeholder="Code"
        autocomplete="off"
        autocapitalize="none"
        spellcheck={false}
        maxLength={64}
        pattern="[A-Za-z0-9_.\-]*"
        value={code}
        onChange={(event) => event.currentTarget.form?.requestSubmit()}
      />
    </form>
  );
}

/** What an operation is about: the ids of dead letters, or null for all, and a text for it. */
interface Target {
  ids: readonly string[] | null;
  what: string;
  name: string;
}

// Without a selection, all are meant; with a filter by code, of which the server has no
// operations, those that are loaded.
function targetOf(letters: Letters, total: number | null): Target {
  const { group, code } = letters.query;
  const chosen = [...letters.selected.value];
  const some = (n: number, which: string) => `${count(n)} ${which} ${n === 1 ? "dead letter" : "dead letters"}`;
  if (chosen.length > 0) return { ids: chosen, what: some(chosen.length, "selected"), name: "selected" };
  if (code !== "") {
    const ids = letters.list.value.map((letter) => letter.id);
    return { ids, what: `${some(ids.length, "shown")} with the code ${code}`, name: `${count(ids.length)} shown` };
  }
  // How many are of one group is known only if all are loaded.
  const known = group === "" ? total : letters.more.value ? null : letters.list.value.length;
  const n = known === null ? "" : `${count(known)} `;
  const of = group === "" ? "of the topic" : `of the group ${group}`;
  return { ids: null, what: `all ${n}dead ${known === 1 ? "letter" : "letters"} ${of}`, name: `all ${n}`.trim() };
}

function Actions({ letters, total }: { letters: Letters; total: number | null }) {
  const busy = letters.work.value !== null;
  const none = letters.list.value.length === 0;
  const chosen = letters.selected.value.size;
  const { ids, what, name } = targetOf(letters, total);
  const { topic } = letters.query;
  return (
    <div class="job-actions">
      <Check
        testid="select-all"
        checked={letters.all.value}
        indeterminate={chosen > 0 && !letters.all.value}
        disabled={none || busy}
        change={(checked) => letters.selectAll(checked)}
      >
        <span data-testid="selected">{chosen > 0 ? `${count(chosen)} selected` : "Select shown"}</span>
      </Check>
      <button
        type="button"
        class="small"
        data-testid="replay"
        disabled={none || busy}
        onClick={() =>
          openDialog({ kind: "replay", topic, what, act: (toTopic: string) => letters.replay(ids, toTopic) })
        }
      >
        Replay {name}…
      </button>
      <button
        type="button"
        class="small danger apart"
        data-testid="purge"
        disabled={none || busy}
        onClick={() =>
          openDialog({
            kind: "typed",
            title: "Purge dead letters?",
            text: `This deletes ${what} forever.`,
            name: topic,
            of: "topic",
            yes: "Purge",
            act: async (typed) => void letters.purge(ids, typed),
          })
        }
      >
        Purge {name}…
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

function List({ letters, choose }: { letters: Letters; choose: (code: string) => void }) {
  const list = letters.list.value;
  if (list.length === 0) {
    if (!letters.loaded.value) return letters.loading.value ? <p class="quiet">Loading…</p> : null;
    return (
      <p class="quiet" data-testid="no-letters">
        {letters.query.code
          ? "No dead letters with this code."
          : "No dead letters. A message becomes one when its attempts run out, or when a consumer rejects it permanently."}
      </p>
    );
  }
  return (
    <>
      <ul class="letters" data-testid="letters">
        {list.map((letter) => (
          <Row key={letter.id} letters={letters} letter={letter} choose={choose} />
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

function Row(props: { letters: Letters; letter: Letter; choose: (code: string) => void }) {
  const { letters, letter, choose } = props;
  const { id, reason, code, attempts, deadLetterTime, partition, group, payload, key } = letter;
  const open = letters.open.value.has(id);
  const selected = letters.selected.value.has(id);
  const head = useMemo(() => oneLine(payload), [payload]);
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
          {head}
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
          · {attempts === 1 ? "1 attempt" : `${count(attempts)} attempts`} · <Since at={deadLetterTime} ago />
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
      {open && <Content topic={letters.query.topic} letter={letter} choose={choose} />}
    </li>
  );
}

function Content({ topic, letter, choose }: { topic: string; letter: Letter; choose: (code: string) => void }) {
  const { payload, headers, messageId, id, key, code, produceTime, deadLetterTime } = letter;
  return (
    <div class="letter-content">
      <Facts
        facts={[
          [
            "Message",
            <a key="message" href={routeFragment(routeTo(topic, { view: "jobs", job: messageId }))}>
              {messageId}
            </a>,
          ],
          ["Dead letter", id],
          ["Key", key || "none"],
          [
            "Code",
            code ? (
              <>
                <code>{code}</code>{" "}
                <LinkButton testid="same-code" act={() => choose(code)}>
                  Only this code
                </LinkButton>
              </>
            ) : (
              "none"
            ),
          ],
          ["Produced", dayAndTime(produceTime)],
          ["Dead since", dayAndTime(deadLetterTime)],
        ]}
      />
      <Headers headers={headers} />
      <Payload payload={payload} />
    </div>
  );
}
