import { Icon } from "../../ui/icon";
import { KeepToken } from "../../ui/keeptoken";
import { Offer } from "../../ui/offer";
import { TokenForm } from "../../ui/tokenform";
import type { Board } from "../model/board";
import { answerOffer, board, go, offered, place, signIn, tokenReason, user } from "../session";
import { Dialogs } from "./dialogs";
import { Overview } from "./overview";
import { Side } from "./side";
import { TopicPane } from "./topic";

/** The page: the topics and the chosen one, or the question for a token. */
export function App() {
  const current = board.value;
  if (!current) {
    return (
      <main class="welcome">
        <TokenForm reason={tokenReason.value} enter={signIn}>
          <div class="welcome-mark">
            <Icon name="queues" />
          </div>
          <h1>Queues</h1>
          <p>
            Paste a token with the capability <code>admin</code>, such as <code>parley token --cap admin</code> prints.
          </p>
        </TokenForm>
      </main>
    );
  }
  const { topic, view } = place.value;
  const chosen = current.view(topic);
  const { denied, token } = current.connection.value;
  // On a phone the pane hides the list: also where it asks for something.
  const asks = denied || token || tokenReason.value !== "" || offered.value !== null;
  return (
    <div class="page queues" data-open={topic !== null || asks}>
      <Side board={current} />
      <main class="pane">
        <Banner board={current} />
        {denied || token ? null : topic === null ? (
          <Overview board={current} />
        ) : chosen ? (
          <TopicPane key={`${topic} ${chosen.topic.createTime}`} board={current} view={chosen} part={view} />
        ) : (
          <Missing board={current} topic={topic} />
        )}
      </main>
      <Dialogs board={current} />
    </div>
  );
}

function Missing({ board, topic }: { board: Board; topic: string }) {
  if (!board.loaded.value) return null;
  return (
    <div class="nothing" data-testid="missing">
      <h1>No topic {topic}</h1>
      <p>It was deleted, or its name is another one.</p>
      <button type="button" onClick={() => go({ topic: null, view: "overview" })}>
        All topics
      </button>
    </div>
  );
}

// What keeps the page from being of use.
function Banner({ board }: { board: Board }) {
  const { state, reason, token, denied } = board.connection.value;
  if (offered.value) return <Offer me={user.value} user={offered.value.user} answer={answerOffer} />;
  if (token || denied) {
    const why = denied
      ? `The token of ${user.value} does not allow this: it lacks the capability admin.`
      : `${reason} Paste another one to go on.`;
    return (
      <div class="strip bad" data-testid={denied ? "denied" : "token-refused"}>
        <TokenForm reason={why} enter={signIn} />
        <button type="button" class="link" data-testid="try-again" onClick={() => board.retry()}>
          Try again
        </button>
      </div>
    );
  }
  if (tokenReason.value) return <KeepToken me={user.value} reason={tokenReason} enter={signIn} />;
  if (state === "waiting") {
    return (
      <div class="strip warn afloat" role="alert" data-testid="trouble">
        <span>What is shown may be old: {reason}</span>
        <button type="button" class="link" data-testid="retry" onClick={() => board.wake()}>
          Try now
        </button>
      </div>
    );
  }
  return null;
}
