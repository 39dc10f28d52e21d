import { readdirSync } from "node:fs";
import { join } from "node:path";
import { replay } from "../../clients/pages/e2e/rig/day.ts";
import { test } from "../../clients/pages/e2e/rig/test.ts";

// The replay of a real log, as `make day DATA=... DAY=... SPEED=...` runs it. DATA is a directory
// of IRC logs. DAY is the beginning of a log's file name. SPEED is how many times faster than in
// the log the messages are sent.
const { DATA = "", DAY = "2013-05-19", SPEED = "60" } = process.env;

test.use({ faults: true });

test(`the day ${DAY} at ${SPEED} times its speed`, async ({ room, enter }, testInfo) => {
  const name = readdirSync(DATA).find((entry) => entry.startsWith(DAY) && entry.endsWith(".raw.txt"));
  if (name === undefined) {
    throw new Error(`no log in ${DATA} has a name like ${DAY}*.raw.txt`);
  }
  const [live, back] = await Promise.all([enter("watcher"), enter("reader")]);
  const began = Date.now();
  await replay(room, live, back, {
    file: join(DATA, name),
    speed: Number(SPEED),
    tell: async (moment, text) => {
      console.log(`${((Date.now() - began) / 1000).toFixed(1).padStart(7)} s  ${text}`);
      for (const [tab, chat] of Object.entries({ live, back })) {
        await chat.page.screenshot({ path: testInfo.outputPath(`${moment}-${tab}.png`) });
      }
    },
  });
});
