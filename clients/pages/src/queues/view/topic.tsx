import { useSignal } from "@preact/signals";
import { failure } from "../../connection/failure";
import { count, duration, perSecond } from "../../ui/format";
import { PaneHead } from "../../ui/frame";
import { Icon } from "../../ui/icon";
import type { Board, TopicView } from "../model/board";
import { type GroupCounts, sum } from "../model/types";
import { overview, type Route, routeFragment, routeTo, type View } from "../route";
import { go } from "../session";
import { ConsumersPart } from "./consumers";
import { openDialog } from "./dialogs";
import { JobPart } from "./job";
import { JobsPart } from "./jobs";
import { LettersPart } from "./letters";
import { OverTime } from "./overtime";
import { oldest } from "./overview";
import { PartitionsPart } from "./partitions";
import { PausedMark } from "./paused";
import { SettingsPart } from "./settings";

/** PartProps are the properties of the parts that show one group of a topic. */
export interface PartProps {
  board: Board;
  view: TopicView;
  route: Route;
  /** The chosen group while it exists, otherwise the first one. Empty if the topic has none. */
  group: string;
}

/** TopicPane shows a topic: its numbers and one of its parts. */
export function TopicPane({ board, view, route }: { board: Board; view: TopicView; route: Route }) {
  const { topic } = view;
  return (
    <>
      <PaneHead title={topic.name} back={{ label: "Back to the topics", act: () => go(overview) }}>
        <PausedMark paused={topic.paused} title="The topic accepts no messages" />
        <Controls board={board} view={view} />
      </PaneHead>
      <div class="pane-body">
        <Tiles view={view} route={route} />
        <Parts view={view} route={route} />
        <Part board={board} view={view} route={route} />
      </div>
    </>
  );
}

function Part({ board, view, route }: { board: Board; view: TopicView; route: Route }) {
  const { groups } = view.topic;
  const props = { board, view, route, group: groups.includes(route.group) ? route.group : (groups[0] ?? "") };
  switch (route.view) {
    case "overview":
      return <OverTime board={board} view={view} />;
    case "jobs":
      return route.job === "" ? <JobsPart {...props} /> : <JobPart {...props} />;
    case "consumers":
      return <ConsumersPart {...props} />;
    case "partitions":
      return <PartitionsPart {...props} />;
    case "dead":
      return <LettersPart board={board} view={view} />;
    case "settings":
      return <SettingsPart board={board} view={view} />;
  }
}

function Controls({ board, view }: { board: Board; view: TopicView }) {
  const { name, paused } = view.topic;
  return (
    <span class="controls">
      <button
        type="button"
        class="small"
        data-testid="produce"
        onClick={() => openDialog({ kind: "produce", topic: name })}
      >
        <Icon name="plus" /> Message
      </button>
      <PauseButton
        testid={paused ? "resume" : "pause"}
        paused={paused}
        label={name}
        act={() => board.change((signal) => board.client.pauseTopic(name, !paused, signal))}
        ask={{
          title: `Pause ${name}?`,
          text: "The topic then accepts no messages: Produce fails with TOPIC_PAUSED. Messages that it has are still delivered.",
        }}
      />
    </span>
  );
}

/**
 * PauseButton pauses or resumes a topic or a group. It asks before it pauses. label is the name for
 * screen readers.
 */
export function PauseButton(props: {
  testid: string;
  paused: boolean;
  label: string;
  act: () => Promise<void>;
  ask: { title: string; text: string };
}) {
  const { testid, paused, label, act, ask } = props;
  const busy = useSignal(false);
  const resume = async () => {
    busy.value = true;
    try {
      await act();
    } catch (cause) {
      openDialog({ kind: "problem", text: failure(cause).text });
    } finally {
      busy.value = false;
    }
  };
  return (
    <button
      type="button"
      class={paused ? "small primary" : "small"}
      data-testid={testid}
      aria-label={`${paused ? "Resume" : "Pause"} ${label}`}
      disabled={busy}
      onClick={() => (paused ? void resume() : openDialog({ kind: "confirm", ...ask, yes: "Pause", act }))}
    >
      {paused ? "Resume" : "Pause…"}
    </button>
  );
}

interface Tile {
  id: string;
  name: string;
  text: string;
  to?: Partial<Route>;
}

function Tiles({ view, route }: { view: TopicView; route: Route }) {
  const { stats, produced, acked } = view;
  const total = stats?.total;
  const of = (pick: (group: GroupCounts) => number) => (total ? count(sum(total.groups, pick)) : "–");
  const age = total ? oldest(total) : 0;
  const tiles: Tile[] = [
    { id: "waiting", name: "Waiting", text: of((g) => g.waiting), to: { view: "jobs", state: "waiting" } },
    { id: "running", name: "Running", text: of((g) => g.running), to: { view: "consumers" } },
    { id: "retrying", name: "Retrying", text: of((g) => g.retrying), to: { view: "jobs", state: "retrying" } },
    {
      id: "scheduled",
      name: "Scheduled",
      text: total ? count(total.scheduled) : "–",
      to: { view: "jobs", state: "scheduled" },
    },
    { id: "dead", name: "Dead", text: total ? count(total.deadLetters) : "–", to: { view: "dead" } },
    { id: "oldest", name: "Oldest", text: age > 0 ? duration(age) : "–" },
    { id: "in", name: "In", text: perSecond(produced.value) },
    { id: "out", name: "Out", text: perSecond(acked.value) },
    { id: "consumers", name: "Consumers", text: of((g) => g.sessions), to: { view: "consumers" } },
  ];
  return (
    <dl class="tiles">
      {tiles.map(({ id, name, text, to }) => (
        <div key={id} class="tile" data-bad={id === "dead" && (total?.deadLetters ?? 0) > 0}>
          <dt>{name}</dt>
          <dd data-testid={`tile-${id}`}>
            {to ? <a href={routeFragment(routeTo(view.topic.name, { group: route.group, ...to }))}>{text}</a> : text}
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Parts({ view, route }: { view: TopicView; route: Route }) {
  const dead = view.stats?.total.deadLetters ?? 0;
  const names: [View, string][] = [
    ["overview", "Overview"],
    ["jobs", "Jobs"],
    ["consumers", "Consumers"],
    ["partitions", "Partitions"],
    ["dead", dead > 0 ? `Dead letters ${count(dead)}` : "Dead letters"],
    ["settings", "Settings"],
  ];
  return (
    <nav class="tabs" aria-label="Parts of the topic">
      {names.map(([id, name]) => (
        <a
          key={id}
          href={routeFragment(routeTo(view.topic.name, { view: id, group: route.group }))}
          data-testid={`part-${id}`}
          aria-current={id === route.view ? "page" : undefined}
        >
          {name}
        </a>
      ))}
    </nav>
  );
}
