import { count } from "../../ui/format";
import { Icon } from "../../ui/icon";
import type { Chat } from "../model/chat";
import type { Offer } from "../model/directory";
import { go } from "../session";

/** ChannelSearch is the field that finds or opens a channel, and its offers besides the list. */
export function ChannelSearch({ chat }: { chat: Chat }) {
  const { directory } = chat;
  const { offers, first, matches } = directory.result.value;
  const enter = (id: string) => {
    directory.search("");
    go(id);
  };
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    const id = await directory.choose();
    if (id !== null) enter(id);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Escape") directory.search("");
    if (event.key !== "ArrowDown" || event.altKey || matches.length === 0) return;
    event.preventDefault();
    document.querySelector<HTMLElement>("[data-testid=channel-list] [tabindex='0']")?.focus();
  };
  return (
    <>
      <form class="search" onSubmit={(event) => void submit(event)}>
        <Icon name="search" />
        <input
          data-testid="channel-name"
          aria-label="Find or open a channel"
          placeholder="Find or open a channel"
          value={directory.text}
          autocomplete="off"
          autocapitalize="none"
          spellcheck={false}
          maxLength={129}
          enterkeyhint="go"
          onInput={(event) => directory.search(event.currentTarget.value)}
          onKeyDown={onKeyDown}
        />
      </form>
      <p class="hidden" role="status">
        {first && `${count(matches.length)} listed. Enter opens ${first}.`}
      </p>
      {offers.map((offer) => (
        <OfferRow key={`${offer.kind} ${offer.id}`} offer={offer} first={offer.id === first} enter={enter} />
      ))}
    </>
  );
}

function OfferRow({ offer, first, enter }: { offer: Offer; first: boolean; enter: (id: string) => void }) {
  const { id, kind } = offer;
  if (kind === "open" || kind === "create" || kind === "unknown") {
    return (
      <button type="button" class="offer" data-testid="offer-channel" data-kind={kind} onClick={() => enter(id)}>
        {kind === "create" ? "Create" : "Open"} <b>#{id}</b>
        {kind === "open" && <span class="offer-note">{messages(offer.count ?? 0)}</span>}
        {kind === "create" && <span class="offer-note">it does not exist yet</span>}
        {first && <EnterMark />}
      </button>
    );
  }
  return (
    <p class="offer" data-testid="offer-channel" data-kind={kind}>
      {
        {
          looking: `Looking for #${id}…`,
          members: `#${id} is for members only, and you are not a member.`,
          absent: `There is no channel #${id}.`,
          invalid: "A name has at most 128 letters, digits, - and _",
        }[kind]
      }
    </p>
  );
}

/** EnterMark marks what the Enter key opens. */
export function EnterMark() {
  return (
    <span class="enter" aria-hidden="true">
      ↵
    </span>
  );
}

function messages(n: number): string {
  return n === 1 ? "1 message" : `${count(n)} messages`;
}
