import { ConnectionBanner, requiresUser } from "../../ui/connectionbanner";
import { Empty } from "../../ui/empty";
import { Frame, Pane } from "../../ui/frame";
import { Welcome } from "../../ui/tokenform";
import type { Board } from "../model/board";
import { overview } from "../route";
import { go, route, session } from "../session";
import { Dialogs } from "./dialogs";
import { Overview } from "./overview";
import { TopicList } from "./sidebar";
import { TopicPane } from "./topic";

/** App is the page: the topics and the chosen topic, or the form for a token. */
export function App() {
  const board = session.page;
  if (!board) {
    return (
      <Welcome session={session} icon="queues" title="Queues">
        Paste a token with the capability <code>admin</code>. <code>parley token --cap admin</code> prints one.
      </Welcome>
    );
  }
  const { topic } = route.value;
  const chosen = board.view(topic);
  return (
    <Frame page="queues" open={topic !== null || requiresUser(session, board.connection)}>
      <TopicList board={board} />
      <Pane>
        <ConnectionBanner
          session={session}
          connection={board.connection}
          offline="The numbers may be out of date."
          capability="admin"
          retry={() => board.retry()}
          float
        />
        {board.connection.value.state === "ended" ? null : topic === null ? (
          <Overview board={board} />
        ) : chosen ? (
          <TopicPane key={`${topic} ${chosen.topic.createTime}`} board={board} view={chosen} route={route.value} />
        ) : (
          <Missing board={board} topic={topic} />
        )}
      </Pane>
      <Dialogs board={board} />
    </Frame>
  );
}

function Missing({ board, topic }: { board: Board; topic: string }) {
  if (!board.loaded.value) return null;
  const action = (
    <button type="button" onClick={() => go(overview)}>
      All topics
    </button>
  );
  return (
    <Empty testid="missing" title={`There is no topic ${topic}`} action={action}>
      It was deleted, or it has another name.
    </Empty>
  );
}
