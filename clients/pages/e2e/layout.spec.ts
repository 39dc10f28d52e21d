import type { Locator } from "@playwright/test";
import { expect, present, test } from "./rig/test.ts";

interface Box {
  x: number;
  y: number;
  width: number;
  height: number;
}

async function box(locator: Locator): Promise<Box> {
  const found = await locator.boundingBox();
  if (found === null) {
    throw new Error("it is not drawn");
  }
  return found;
}

/** overlaps reports whether two boxes have more than a pixel in common. */
function overlaps(a: Box, b: Box): boolean {
  const across = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
  const down = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
  return across > 1 && down > 1;
}

for (const width of [1_280, 720]) {
  test(`the buttons of a message cover no message, ${width} px wide`, async ({ enter }) => {
    const ann = await enter("ann", { options: { viewport: { width, height: 800 } } });
    const texts = ["first", `second ${"with many words ".repeat(30)}`.trim(), "third", "fourth"];
    for (const text of texts) {
      await ann.send(text);
    }
    await ann.sent();
    const rows = await Promise.all(texts.map((text) => box(ann.message(text))));
    const contents = await Promise.all(texts.map((text) => box(ann.message(text).getByTestId("content"))));
    for (const [i, text] of texts.entries()) {
      await ann.message(text).hover();
      for (const name of ["edit", "recall"]) {
        const button = ann.message(text).getByTestId(name);
        await expect(button).toBeVisible();
        const at = await box(button);
        const covered = [...rows.filter((_, other) => other !== i), ...contents].filter((one) => overlaps(at, one));
        expect(covered, `${name} of ${text.slice(0, 10)}`).toEqual([]);
      }
    }
  });
}

test("lines are not longer than one can read on a wide screen", async ({ room, enter }) => {
  await room.api.send(room.channel, "many words in a row ".repeat(60));
  const ann = await enter("ann", { options: { viewport: { width: 2_560, height: 1_200 } } });
  const { width } = await box(ann.page.getByTestId("content").first());
  expect(width).toBeGreaterThan(500);
  expect(width).toBeLessThan(900);
  expect((await box(ann.composer)).width).toBeLessThan(1_000);
});

test("names are shown without the parts that say that they are ids, and the id is at hand", async ({ room, enter }) => {
  const random = "auth0|5f7c8ec7c33c6c004bbafe82";
  const members = ["user:ann", "user:ben", random].map((userId) => ({ userId }));
  await room.api.call("CreateChannel", { channelId: room.channel, membersOnly: true, members });
  const ann = await enter("user:ann", { capabilities: present });
  const ben = await enter("user:ben", { capabilities: present });
  const sso = await enter(random, { capabilities: present });
  await expect(ann.page.getByTestId("me")).toHaveText("ann");
  await ben.send("from ben");
  const sender = ann.message("from ben").getByTestId("sender");
  await expect(sender).toHaveText("ben");
  await expect(sender).toHaveAttribute("title", "user:ben");
  await expect(ann.message("from ben")).toHaveAttribute("data-from", "user:ben");
  await sso.send("from elsewhere");
  await expect(ann.message("from elsewhere").getByTestId("sender")).toHaveText("5f7c8ec7…");
  await expect(ann.page.getByTestId(`channel-${room.channel}`)).toContainText("5f7c8ec7…: from elsewhere");
  await ben.composer.pressSequentially("I am");
  await expect(ann.page.getByTestId("typing")).toHaveText("ben is typing");
  await ann.page.getByTestId("members").locator("summary").click();
  await expect(ann.page.getByTestId("member-user:ben").locator("b")).toHaveText("ben");
});

test("End in the composer goes to the newest message when the caret is at the end", async ({ room, enter }) => {
  await room.api.sendAll(
    room.channel,
    Array.from({ length: 300 }, (_, i) => `message ${i}`),
  );
  const ann = await enter("ann");
  const { page } = ann;
  const jump = page.getByTestId("jump");
  const scrollBack = async () => {
    await ann.log.hover();
    await page.mouse.wheel(0, -2_000);
    await expect(jump).toBeVisible();
    await ann.composer.focus();
  };
  await expect(ann.message("message 299")).toBeVisible();
  await scrollBack();
  await page.keyboard.press("End");
  await expect(ann.message("message 299")).toBeInViewport();

  // In a text it first goes to the end of the text.
  await ann.composer.fill("some text");
  await page.keyboard.press("Home");
  await scrollBack();
  await page.keyboard.press("End");
  await expect(jump).toBeVisible();
  await page.keyboard.press("End");
  await expect(ann.message("message 299")).toBeInViewport();
  await expect(ann.composer).toHaveValue("some text");
});

test.describe("offline", () => {
  test.use({ faults: true });

  test("the button to try again does not run into the one beside it, also with wide letters", async ({
    room,
    enter,
  }) => {
    const ann = await enter("ann");
    const { page } = ann;
    // The spacing that a page must allow: WCAG 2.2, 1.4.12.
    await page.evaluate(() => {
      document.documentElement.style.letterSpacing = "0.12em";
      document.documentElement.style.wordSpacing = "0.16em";
    });
    room.network.cut();
    await expect(page.getByTestId("retry-now")).toBeVisible();
    // The text changes every second, so all is measured at once. It is measured again if the button was
    // away, as it is while the page tries to connect.
    await expect(async () => {
      const gaps = await page.getByTestId("state").evaluate((state) => {
        const status = state.querySelector("[role=status]")?.firstChild;
        const right = () => state.querySelector("[data-testid=retry-now]")?.getBoundingClientRect().right ?? Infinity;
        const left = document.querySelector("[data-testid=theme]")?.getBoundingClientRect().left ?? 0;
        return ["offline, 10 s", "offline, trying…", "offline, trying for a long time…"].map((words) => {
          if (status) status.nodeValue = words;
          return left - right();
        });
      });
      expect(Math.min(...gaps), `pixels between them: ${gaps}`).toBeGreaterThanOrEqual(0);
    }).toPass({ timeout: 15_000 });
  });
});
