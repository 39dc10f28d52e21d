/** PeerToken is a token of another tab and the storage key under which that tab has it. */
export interface PeerToken {
  readonly key: string;
  readonly token: string;
}

/**
 * Peers are the other tabs of the browser with pages of this origin. A new tab gets its token from
 * them, so that the token needs no storage that outlives the tabs.
 */
export interface Peers {
  /**
   * Resolves with a token of another tab, under the first key possible, or with null after 250 ms.
   */
  ask(keys: readonly string[]): Promise<PeerToken | null>;
  /** Answers other tabs. token returns this tab's token under a key, or null. Call it once. */
  answer(token: (key: string) => string | null): void;
}

const answersWithin = 250;

type Note =
  | { readonly ask: string; readonly keys: readonly string[] }
  | { readonly to: string; readonly found: PeerToken };

/** browserPeers returns the Peers that share a BroadcastChannel, or none without such channels. */
export function browserPeers(): Peers | undefined {
  if (!("BroadcastChannel" in globalThis)) return undefined;
  const channel = new BroadcastChannel("parley.token");
  return {
    ask: (keys) => ask(channel, keys),
    answer: (token) => {
      channel.addEventListener("message", ({ data }: MessageEvent<Note>) => {
        if (!("ask" in data)) return;
        for (const key of data.keys) {
          const found = token(key);
          if (found !== null) return channel.postMessage({ to: data.ask, found: { key, token: found } } satisfies Note);
        }
      });
    },
  };
}

function ask(channel: BroadcastChannel, keys: readonly string[]): Promise<PeerToken | null> {
  const id = crypto.randomUUID();
  return new Promise((resolve) => {
    let best: PeerToken | null = null;
    const end = () => {
      channel.removeEventListener("message", heard);
      resolve(best);
    };
    const heard = ({ data }: MessageEvent<Note>) => {
      if (!("to" in data) || data.to !== id) return;
      if (best === null || keys.indexOf(data.found.key) < keys.indexOf(best.key)) best = data.found;
      if (best.key === keys[0]) end();
    };
    channel.addEventListener("message", heard);
    setTimeout(end, answersWithin);
    channel.postMessage({ ask: id, keys } satisfies Note);
  });
}
