#!/usr/bin/env node
// Counts the words of each user in a channel: over its whole history, and then live until it is
// interrupted.
//
//   PARLEY_TOKEN=$(cat data/dev-token) node examples/node/digest.js general
import { Client, live } from "@parleyhq/sdk";

const [channel = "general"] = process.argv.slice(2);
const { PARLEY_ADDR = "http://127.0.0.1:8080", PARLEY_TOKEN } = process.env;
if (!PARLEY_TOKEN) {
  console.error("digest: set PARLEY_TOKEN; parleyd dev writes one to data/dev-token");
  process.exit(2);
}

// Aborted by Ctrl-C. It ends the subscription, and calls that are retried.
const interrupt = new AbortController();
process.once("SIGINT", () => interrupt.abort());
process.once("SIGTERM", () => interrupt.abort());

const client = new Client(PARLEY_ADDR, {
  token: PARLEY_TOKEN,
  callTimeout: 0, // It runs until it is interrupted, even while the server is unavailable.
  log: (_level, message) => console.error(`digest: ${message}`),
});

/** The current messages, by id. Of two copies of a message, note keeps the one with the higher changedSeq. */
const messages = new Map();

function note(message) {
  const known = messages.get(message.msgId);
  if (known === undefined || known.changedSeq < message.changedSeq) {
    messages.set(message.msgId, message);
  }
}

async function load() {
  for await (const message of client.history(channel, { afterSeq: 0, pageSize: 1000, signal: interrupt.signal })) {
    note(message);
  }
}

function digest() {
  const users = new Map();
  for (const { fromId, content } of messages.values()) {
    const user = users.get(fromId) ?? { words: 0, messages: 0 };
    user.words += content.split(/\s+/).filter(Boolean).length; // A recalled message has no content.
    user.messages += 1;
    users.set(fromId, user);
  }
  const order = [...users].sort(([a, x], [b, y]) => y.words - x.words || (a < b ? -1 : 1));
  return order.map(([name, user]) => `${name}: ${user.words} words in ${user.messages} messages`).join("\n");
}

// Messages that are sent while the history loads wait in the subscription, so none is missed.
// Messages in both are counted once, by their id.
const subscription = client.subscribe([live(channel)], { signal: interrupt.signal });

let loaded = false;
try {
  for await (const event of subscription) {
    switch (event.kind) {
      case "channel_state": // It comes again after each reconnect, and then no second load is needed.
        if (!loaded) {
          await load();
          loaded = true;
          console.log(`${digest()}\nfollowing ${channel}`);
        }
        break;
      case "gap":
        messages.clear();
        await load();
        break;
      case "lost":
        throw new Error(`no member of ${channel} any more`);
      case "sent":
      case "edited":
      case "recalled":
        note(event.message);
        console.log(`${event.message.fromId} ${event.kind}: ${event.message.content}`);
        break;
    }
  }
} catch (error) {
  if (!interrupt.signal.aborted) {
    console.error(`digest: ${error.message}`);
    process.exitCode = 1;
  } else if (loaded) {
    console.log(`\n${digest()}`);
  }
} finally {
  client.close();
}
