import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { resolve } from "node:path";
import { expect, test } from "./rig/test.ts";

// examples/page: a page without a build step, from another origin than the server's.
const example = readFileSync(resolve(import.meta.dirname, "../../../examples/page/index.html"), "utf8");

test.use({ faults: true });

test("the page of forty lines shows a channel and sends to it", async ({ room, context, watch }) => {
  expect(example.trimEnd().split("\n").length).toBeLessThanOrEqual(40);
  const site = createServer((request, response) => {
    response.writeHead(request.url?.startsWith("/index.html") ? 200 : 204, { "content-type": "text/html" });
    response.end(example);
  });
  await new Promise<void>((done) => site.listen(0, "127.0.0.1", done));
  try {
    const { msgId } = await room.api.send(room.channel, "before <b>it</b> was open");
    await room.api
      .send(room.channel, "to be deleted")
      .then(({ msgId }) => room.api.call("RecallMessage", { channelId: room.channel, msgId }));
    const page = await context.newPage();
    watch(page);
    const { port } = site.address() as AddressInfo;
    const query = new URLSearchParams({ server: room.url, channel: room.channel });
    await page.goto(`http://127.0.0.1:${port}/index.html?${query}#token=${room.server.token("ann")}`);
    const items = page.locator("#log li");
    await expect(items).toHaveText(["tester: before <b>it</b> was open", "tester deleted a message"]);

    await page.getByLabel("Message").fill("sent from the page");
    await page.getByRole("button", { name: "Send" }).click();
    await expect(items.nth(2)).toHaveText("ann: sent from the page");
    await expect(page.getByLabel("Message")).toHaveValue("");

    await room.api.call("EditMessage", { channelId: room.channel, msgId, content: "edited meanwhile" });
    await expect(items.nth(0)).toHaveText("tester: edited meanwhile");
    room.network.reset();
    await room.api.send(room.channel, "after the line broke");
    await expect(items.nth(3)).toHaveText("tester: after the line broke");
    await expect(items).toHaveCount(4);
  } finally {
    site.close();
  }
});
