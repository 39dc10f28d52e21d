import type { Page } from "@playwright/test";
import type { Chat } from "./rig/chat.ts";
import { expect, present, type Room, test } from "./rig/test.ts";

/** shows waits until a tab's list of members shows a user as online, away or offline. */
async function shows(chat: Chat, user: string, availability: string): Promise<void> {
  const member = chat.page.getByTestId(`member-${user}`);
  if (availability === "offline") {
    await expect(member).toHaveCount(0);
  } else {
    await expect(member).toHaveAttribute("data-availability", availability);
    await expect(member).toContainText(availability);
  }
}

/** setHidden makes a page believe that it is hidden, or visible again. */
async function setHidden(page: Page, hidden: boolean): Promise<void> {
  await page.evaluate(
    (state) => {
      Object.defineProperty(document, "visibilityState", { configurable: true, get: () => state });
      document.dispatchEvent(new Event("visibilitychange"));
    },
    hidden ? "hidden" : "visible",
  );
}

async function create(room: Room): Promise<void> {
  await room.api.call("CreateChannel", {
    channelId: room.channel,
    membersOnly: true,
    members: ["ann", "ben", "carl"].map((userId) => ({ userId })),
  });
}

test("the dots show who is online and away, and who closed their tab", async ({ room, enter }, info) => {
  await create(room);
  const ann = await enter("ann", { capabilities: present });
  const count = ann.page.getByTestId("online-count");
  const inList = ann.page.getByTestId(`online-${room.channel}`);
  await expect(count).toHaveText("1 of 4 online");
  await expect(inList).toContainText("0 others online");
  await ann.page.getByTestId("members").locator("summary").click();
  await shows(ann, "ann", "online");
  await shows(ann, "ben", "offline");

  const ben = await enter("ben", { capabilities: present });
  await expect(count).toHaveText("2 of 4 online");
  await expect(inList).toContainText("1 other online");
  await shows(ann, "ben", "online");
  await setHidden(ben.page, true);
  await shows(ann, "ben", "away");
  for (const theme of ["light", "dark"] as const) {
    await ann.page.emulateMedia({ colorScheme: theme });
    await ann.page.screenshot({ path: info.outputPath(`presence-${theme}.png`) });
  }
  await setHidden(ben.page, false);
  await shows(ann, "ben", "online");
  const members = ann.page.getByTestId("members");
  await ann.page.keyboard.press("Escape");
  await expect(members).not.toHaveAttribute("open");
  await ann.page.keyboard.press("Enter");
  await expect(members).toHaveAttribute("open");

  await ben.page.close();
  await shows(ann, "ben", "offline");
  await expect(count).toHaveText("1 of 4 online");
  await expect(inList).toContainText("0 others online");
});

test.describe("over a server that does not answer", () => {
  test.use({ faults: true });

  test("nobody is shown as online", async ({ room, enter }) => {
    await create(room);
    const ann = await enter("ann", { capabilities: present });
    const { page } = ann;
    await expect(page.getByTestId("online-count")).toHaveText("1 of 4 online");
    await page.getByTestId("members").locator("summary").click();
    room.network.stall();
    await expect(page.getByTestId("members-unknown")).toHaveText("4 members");
    await expect(page.getByTestId(`online-${room.channel}`)).toHaveCount(0);
    await expect(page.getByText("online")).toHaveCount(0);
    room.network.heal();
    await expect(page.getByTestId("online-count")).toHaveText("1 of 4 online");
    await expect(page.getByTestId(`online-${room.channel}`)).toContainText("0 others online");
  });
});

test("events and presence share one stream", async ({ room, enter }) => {
  await create(room);
  const ann = await enter("ann", { capabilities: present });
  await expect(ann.page.getByTestId("online-count")).toHaveText("1 of 4 online");
  const used = await ann.page.evaluate(() => performance.getEntriesByType("resource").map((entry) => entry.name));
  expect(used.filter((name) => name.endsWith("PresenceService/Connect"))).toEqual([]);
  await ann.send("hello");
  await expect(ann.message("hello")).toBeVisible();
});

test("a token without presence shows no dots, and chats", async ({ room, enter }) => {
  await create(room);
  const ann = await enter("ann");
  await ann.send("hello");
  await expect(ann.message("hello")).toBeVisible();
  await expect(ann.page.getByTestId("members")).toHaveCount(0);
});
