import type { Page } from "@playwright/test";
import { expect, test } from "./rig/test.ts";

const field = (page: Page) => page.getByTestId("channel-name");
const offer = (page: Page) => page.getByTestId("offer-channel");

test("a channel of others is found by its name in any case, and opened, not created", async ({ room, enter }) => {
  const general = `general-${room.channel}`;
  await room.api.send(general, "written before");
  const ann = await enter("ann");
  const { page } = ann;
  await field(page).fill(general.toUpperCase());
  await expect(offer(page)).toHaveAttribute("data-kind", "open");
  await expect(offer(page)).toContainText(`Open #${general}`);
  await expect(offer(page)).toContainText("1 message");
  await field(page).press("Enter");
  await expect(page.getByTestId("title")).toHaveText(`#${general}`);
  await expect(ann.message("written before")).toBeVisible();
});

test("a channel whose name has capitals is found without them, and gets no twin", async ({ room, enter }) => {
  const id = `General-${Number.parseInt(room.channel.slice("room-".length), 16)}`;
  await room.api.send(id, "written before");
  const ann = await enter("ann");
  await field(ann.page).fill(id.toLowerCase());
  await expect(offer(ann.page)).toHaveText(new RegExp(`^Open #${id}`));
  await field(ann.page).press("Enter");
  await expect(ann.message("written before")).toBeVisible();
});

test("a channel without messages and members is opened, not created", async ({ room, enter }) => {
  const empty = `empty-${room.channel}`;
  await room.api.call("CreateChannel", { channelId: empty });
  await room.api.call("RemoveMembers", { channelId: empty, userIds: ["tester"] });
  const ann = await enter("ann");
  const { page } = ann;
  await field(page).fill(empty);
  await expect(offer(page)).toHaveAttribute("data-kind", "open");
  await field(page).press("Enter");
  await expect(page.getByTestId("title")).toHaveText(`#${empty}`);
  await expect(ann.log).toContainText("Nothing here yet. Say hello.");
});

test("a channel that does not exist says so, and stays in the list only if one writes in it", async ({
  room,
  enter,
}) => {
  await room.api.send(room.channel, "hello");
  const ann = await enter("ann");
  const { page } = ann;
  const open = async (id: string) => {
    await field(page).fill(id);
    await field(page).press("Enter");
    await expect(page.getByTestId("title")).toHaveText(`#${id}`);
  };
  const [typo, drafted, sent] = ["generl", "drafted", "sent"].map((name) => `${name}-${room.channel}`) as [
    string,
    string,
    string,
  ];
  await open(typo);
  await expect(page.getByTestId("absent")).toContainText("Your first message creates it");
  await expect(page.getByTestId(`channel-${typo}`)).toBeVisible();
  await open(drafted);
  await expect(page.getByTestId(`channel-${typo}`)).toHaveCount(0);
  await ann.composer.fill("not finished");
  await open(sent);
  await ann.send("the first message");
  await ann.sent();
  await expect(page.getByTestId("absent")).toHaveCount(0);
  await open(room.channel);
  await expect(page.getByTestId(`channel-${sent}`)).toBeVisible();
  await expect(page.getByTestId(`channel-${drafted}`)).toBeVisible();
  await expect(page.getByTestId(`channel-${typo}`)).toHaveCount(0);
});

test("Enter waits for the look-up of what was just entered", async ({ room, enter }) => {
  const general = `general-${room.channel}`;
  await room.api.send(general, "written before");
  const ann = await enter("ann");
  await field(ann.page).fill(`#General-${room.channel}`);
  await field(ann.page).press("Enter");
  await expect(ann.page.getByTestId("title")).toHaveText(`#${general}`);
});

test("Enter opens a listed channel that matches, and a new one is created only on request", async ({ room, enter }) => {
  const id = room.channel.slice("room-".length);
  const incidents = `${id}-incidents`;
  const ann = await enter("ann", { channel: incidents });
  const { page } = ann;
  await ann.send("disk full");
  await ann.sent();
  await field(page).fill(`${id}-other`);
  await expect(offer(page)).toHaveAttribute("data-kind", "create");
  await field(page).press("Enter");
  await expect(page.getByTestId("title")).toHaveText(`#${id}-other`);

  await field(page).fill(`${id}-inc`);
  await expect(offer(page)).toContainText(`Create #${id}-inc`);
  await expect(offer(page)).toContainText("does not exist");
  await field(page).press("Enter");
  await expect(page.getByTestId("title")).toHaveText(`#${incidents}`);
  await expect(page.getByTestId(`channel-${id}-inc`)).toHaveCount(0);

  await field(page).fill(`${id}-inc`);
  await page.getByRole("button", { name: `Create #${id}-inc` }).click();
  await expect(page.getByTestId("title")).toHaveText(`#${id}-inc`);
});

test.describe("with a refused look-up", () => {
  test.use({ faults: true });

  test("a channel for members only is named as such, and cannot be created again", async ({ room, enter }) => {
    const secret = `secret-${room.channel}`;
    await room.api.call("CreateChannel", { channelId: secret, membersOnly: true });
    const ann = await enter("ann");
    await field(ann.page).fill(secret);
    await expect(offer(ann.page)).toHaveAttribute("data-kind", "members");
    await expect(ann.page.getByRole("button", { name: secret })).toHaveCount(0);
  });
});

test("a token that cannot send creates nothing", async ({ room, enter }) => {
  const ann = await enter("ann", { capabilities: ["channel:*=history,subscribe"] });
  await field(ann.page).fill(`missing-${room.channel}`);
  await expect(offer(ann.page)).toHaveAttribute("data-kind", "absent");
  await field(ann.page).press("Enter");
  await expect(ann.page.getByTestId("title")).toHaveText(`#${room.channel}`);
});
