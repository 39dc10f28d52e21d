import { join } from "node:path";
import { replay } from "./rig/day.ts";
import { test } from "./rig/test.ts";

test.use({ faults: true });

// hack/day does the same with a whole day of a real channel.
test("a log is replayed into the page while another tab scrolls back and the server is killed", async ({
  room,
  enter,
}) => {
  const [live, back] = await Promise.all([enter("watcher"), enter("reader")]);
  await replay(room, live, back, { file: join(import.meta.dirname, "testdata", "made-up.raw.txt"), speed: 120 });
});
