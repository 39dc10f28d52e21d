import type { ReadonlySignal } from "@preact/signals";
import type { Session, SignedInPage } from "../connection/session";
import type { ConnectionState } from "../connection/state";
import { wake } from "../connection/wake";
import { Banner, LinkButton } from "./banner";
import { TokenForm } from "./tokenform";

/**
 * ConnectionBanner shows a problem of a signed-in user and how to solve it: an offered token, a
 * refused token, a missing capability, a connection that has ended, or one that waits. Without a
 * problem it shows nothing.
 */
export function ConnectionBanner(props: {
  session: Session<SignedInPage>;
  connection: ReadonlySignal<ConnectionState>;
  /** The effect of an interruption on this page, as a sentence. */
  offline: string;
  /** The capability that the page requires, for the text about a token that lacks it. */
  capability: string;
  /** Connects again after the connection ended. */
  retry: () => void;
  /** True if the banner of an interruption floats. See Banner. */
  float?: boolean;
}) {
  const { session, connection, offline, capability, retry, float = false } = props;
  const now = connection.value;
  const { user } = session;
  const enter = (token: string) => session.signIn(token);
  const offer = session.offer.value;
  if (offer) {
    const actions = (
      <>
        <LinkButton testid="take-offer" act={() => session.answerOffer(true)}>
          Continue as {offer.user}
        </LinkButton>
        <LinkButton testid="leave-offer" act={() => session.answerOffer(false)}>
          Stay signed in as {user}
        </LinkButton>
      </>
    );
    return (
      <Banner kind="warn" testid="offer" alert actions={actions}>
        The address contains a token of <b dir="auto">{offer.user}</b>.
      </Banner>
    );
  }
  if (now.state === "ended") {
    const again = (
      <LinkButton testid="try-again" act={retry}>
        {now.end === "failed" ? "Connect again" : "Try again"}
      </LinkButton>
    );
    switch (now.end) {
      case "revoked": // the session signs the user out
        return null;
      case "failed":
        return (
          <Banner kind="bad" testid="disconnected" alert actions={again}>
            Disconnected: {now.reason}
          </Banner>
        );
      case "token":
        return (
          <Banner kind="bad" testid="token-refused" actions={again}>
            <TokenForm
              reason={session.refusal.value || `${now.reason} Paste another token to continue.`}
              enter={enter}
            />
          </Banner>
        );
      case "capability":
        return (
          <Banner kind="bad" testid="denied" actions={again}>
            <TokenForm
              reason={
                session.refusal.value ||
                `The token of ${user} does not allow this: it lacks the capability ${capability}.`
              }
              enter={enter}
            />
          </Banner>
        );
    }
  }
  if (session.refusal.value) {
    const stay = (
      <LinkButton testid="keep-token" act={() => session.keepToken()}>
        Stay signed in as {user}
      </LinkButton>
    );
    return (
      <Banner kind="warn" testid="token-unusable" actions={stay}>
        <TokenForm reason={session.refusal.value} enter={enter} />
      </Banner>
    );
  }
  if (now.state === "waiting") {
    const retryNow = (
      <LinkButton testid="retry" act={wake}>
        Try now
      </LinkButton>
    );
    return (
      <Banner kind="warn" testid="trouble" alert float={float} actions={retryNow}>
        Not connected. {now.reason} {offline}
      </Banner>
    );
  }
  return null;
}

/**
 * requiresUser reports whether ConnectionBanner requires an action of the user. A phone must then
 * show the pane with the banner.
 */
export function requiresUser(session: Session<SignedInPage>, connection: ReadonlySignal<ConnectionState>): boolean {
  return session.offer.value !== null || session.refusal.value !== "" || connection.value.state === "ended";
}
