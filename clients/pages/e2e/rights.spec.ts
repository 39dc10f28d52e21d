import { Chat } from "./rig/chat.ts";
import { expect, type Room, test } from "./rig/test.ts";

const readOnly = ["channel:*=history,subscribe"];

test("a token that can only send writes, and shows what was written", async ({ room, enter }) => {
  await room.api.send(room.channel, "not for senders");
  const bot = await enter("bot", { capabilities: ["channel:*=send"] });
  const { page } = bot;
  await expect(page.getByTestId("restricted")).toContainText("does not allow you to read");
  await bot.send("from the bot");
  await expect(bot.message("from the bot")).toBeVisible();
  await bot.sent();
  expect((await room.api.history(room.channel)).map((m) => m.content)).toEqual(["not for senders", "from the bot"]);
  await expect(page.getByTestId("channel-error")).toHaveCount(0);
  await expect(page.getByTestId("channel-list")).not.toContainText("no longer");
  await bot.live();
});

test("a token without subscribe shows the history, and loads more on request", async ({ room, enter }) => {
  await room.api.send(room.channel, "one");
  const ann = await enter("ann", { capabilities: ["channel:*=send,history"] });
  await expect(ann.message("one")).toBeVisible();
  await room.api.send(room.channel, "two");
  await ann.page.getByTestId("load-newest").click();
  await expect(ann.message("two")).toBeVisible();
  await ann.send("three");
  await expect(ann.message("three")).toBeVisible();
});

test("a token that can only read has no composer, and receives messages", async ({ room, enter }) => {
  await room.api.send(room.channel, "before");
  const ann = await enter("ann", { capabilities: readOnly });
  await expect(ann.message("before")).toBeVisible();
  await expect(ann.page.getByTestId("no-composer")).toContainText("token lacks the action send");
  await expect(ann.composer).toHaveCount(0);
  await room.api.send(room.channel, "after");
  await expect(ann.message("after")).toBeVisible();
});

test("the rights are those of the channel: a pattern can allow to write in some only", async ({ room, enter }) => {
  const capabilities = [`channel:${room.channel}=send,history,subscribe`, "channel:*=history,subscribe"];
  const ann = await enter("ann", { capabilities });
  await expect(ann.composer).toBeVisible();
  const other = await enter("ann", { capabilities, channel: `${room.channel}-2` });
  await expect(other.page.getByTestId("no-composer")).toBeVisible();
});

test.describe("with a broken call", () => {
  test.use({ faults: true });

  test("a message that the token does not allow to send is not offered to be sent again", async ({ room, enter }) => {
    const ann = await enter("ann");
    const context = ann.page.context();
    await ann.send("before");
    await ann.sent();
    const sends = /\/SendMessage$/;
    await context.route(sends, (route) => route.abort("internetdisconnected"));
    await ann.send("too late");
    await expect(ann.pending).toHaveCount(1);
    await ann.page.close();
    await context.unroute(sends);

    const page = await context.newPage();
    await page.goto(`${room.url}/#token=${room.server.token("ann", ...readOnly)}&channel=${room.channel}`);
    const reader = new Chat(page);
    await expect(reader.pending).toHaveAttribute("data-status", "failed");
    await expect(reader.pending.getByTestId("retry")).toHaveCount(0);
    await reader.pending.getByTestId("discard").click();
    await expect(reader.pending).toHaveCount(0);
  });

  async function create(room: Room, members: string[]): Promise<void> {
    const users = members.map((userId) => ({ userId }));
    await room.api.call("CreateChannel", { channelId: room.channel, membersOnly: true, members: users });
  }

  test("a channel that never was the user's is not one that they lost, and does not stay", async ({ room, enter }) => {
    await create(room, []);
    const ann = await enter("ann");
    const { page } = ann;
    const row = page.getByTestId(`channel-${room.channel}`);
    await expect(page.getByTestId("channel-error")).toContainText("you are not a member");
    await expect(row).toContainText("for members only");
    await expect(row).not.toContainText("no longer");
    await expect(ann.composer).toHaveCount(0);
    await page.getByTestId("channel-name").fill(`other-${room.channel}`);
    await page.getByTestId("channel-name").press("Enter");
    await expect(page.getByTestId("title")).toContainText("other");
    await expect(row).toHaveCount(0);
  });

  test("a channel of which the user was a member says so", async ({ room, enter }) => {
    await create(room, ["ann"]);
    const ann = await enter("ann");
    await expect(ann.composer).toBeVisible();
    await room.api.call("RemoveMembers", { channelId: room.channel, userIds: ["ann"] });
    await expect(ann.page.getByTestId(`channel-${room.channel}`)).toContainText("no longer a member");
    await expect(ann.page.getByTestId("no-composer")).toBeVisible();
  });

  test("a channel that is deleted says so, also on a page that is opened later", async ({ room, enter }) => {
    await create(room, ["ann"]);
    const ann = await enter("ann");
    await expect(ann.composer).toBeVisible();
    await room.api.call("DeleteChannel", { channelId: room.channel });
    await expect(ann.page.getByTestId("channel-error")).toContainText("This channel was deleted");
    await expect(ann.page.getByTestId(`channel-${room.channel}`)).toContainText("no such channel");
    await expect(ann.page.getByTestId("no-composer")).toBeVisible();
    const again = await enter("ann");
    await expect(again.page.getByTestId("channel-error")).toContainText("There is no such channel");
    await expect(again.page.getByTestId(`channel-${room.channel}`)).not.toContainText("for members only");
    await expect(again.composer).toHaveCount(0);
  });
});
