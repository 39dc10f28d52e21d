import type { Page } from "@playwright/test";
import { expectExactly } from "./rig/judge.ts";
import { expect, test } from "./rig/test.ts";

const count = 10_000;

/** text returns a message of a few words to a few lines. */
function text(i: number): string {
  return `message ${i}: ${"some words that somebody wrote ".repeat(i % 7)}`.trim();
}

/**
 * measureFrames records the times between frames. The returned function stops it and returns them,
 * in milliseconds.
 */
async function measureFrames(page: Page): Promise<() => Promise<number[]>> {
  const frames = await page.evaluateHandle(() => {
    const measured = { times: [] as number[], on: true };
    let last = performance.now();
    const note = (now: number) => {
      measured.times.push(now - last);
      last = now;
      if (measured.on) {
        requestAnimationFrame(note);
      }
    };
    requestAnimationFrame(note);
    return measured;
  });
  return () =>
    frames.evaluate((measured) => {
      measured.on = false;
      return measured.times.slice(1);
    });
}

function summary(times: number[]) {
  const sorted = times.toSorted((a, b) => a - b);
  const at = (share: number) => Math.round((sorted[Math.ceil(share * sorted.length) - 1] ?? 0) * 10) / 10;
  return {
    frames: times.length,
    p50: at(0.5),
    p95: at(0.95),
    p99: at(0.99),
    max: at(1),
    over33: Math.round((1000 * times.filter((ms) => ms > 33.4).length) / times.length) / 10,
  };
}

test("ten thousand messages scroll smoothly to the first", async ({ room, enter }, testInfo) => {
  test.slow();
  await room.api.sendAll(
    room.channel,
    Array.from({ length: count }, (_, i) => text(i + 1)),
  );
  const chat = await enter("ann");
  const { page, log } = chat;
  await expect(chat.message(text(count))).toBeVisible();
  await log.hover();
  const frames = await measureFrames(page);
  const began = Date.now();
  // One turn of the wheel per frame or two, a screen each.
  await expect
    .poll(
      async () => {
        for (let i = 0; i < 20; i++) {
          await page.mouse.wheel(0, -700);
        }
        return await chat.inSight(1);
      },
      { intervals: [0], timeout: 120_000 },
    )
    .toBe(true);
  const seconds = (Date.now() - began) / 1000;
  const figures = { messages: count, seconds, ...summary(await frames()) };
  testInfo.annotations.push({ type: "frames", description: JSON.stringify(figures) });
  console.log(`frame times in ms while scrolling: ${JSON.stringify(figures)}`);
  // Far above the measured values, for a busy machine.
  expect(figures.p50).toBeLessThan(40);
  expect(figures.p95).toBeLessThan(200);

  const rows = await page.getByTestId("message").count();
  expect(rows, "rows in the document").toBeLessThan(1_000);

  await page.getByTestId("jump").click();
  await expect(chat.message(text(count))).toBeVisible();
});

test("the keyboard scrolls to the first message and back", async ({ room, enter }) => {
  await room.api.sendAll(
    room.channel,
    Array.from({ length: 700 }, (_, i) => text(i + 1)),
  );
  const chat = await enter("ann");
  await expect(chat.message(text(700))).toBeVisible();
  await chat.log.focus();
  await expect
    .poll(
      async () => {
        await chat.page.keyboard.press("PageUp");
        return await chat.inSight(1);
      },
      { intervals: [20] },
    )
    .toBe(true);
  await expect
    .poll(
      async () => {
        await chat.page.keyboard.press("End");
        return await chat.inSight(700);
      },
      { intervals: [100] },
    )
    .toBe(true);
});

test("messages that arrive while the user reads history move nothing, and are all shown in the end", async ({
  room,
  enter,
}) => {
  await room.api.sendAll(
    room.channel,
    Array.from({ length: 1_000 }, (_, i) => text(i + 1)),
  );
  const chat = await enter("ann");
  await expect(chat.message(text(1_000))).toBeVisible();
  await chat.log.hover();
  await chat.page.mouse.wheel(0, -3_000);
  await expect(chat.page.getByTestId("jump")).toBeVisible();
  const top = () =>
    chat.log.evaluate((log) => {
      const edge = log.getBoundingClientRect().top;
      const rows = [...log.querySelectorAll<HTMLElement>("[data-testid=message]")];
      const row = rows.find((r) => r.getBoundingClientRect().top >= edge);
      return { seq: row?.dataset.seq, top: Math.round(row?.getBoundingClientRect().top ?? 0) };
    });
  let before = await top();
  await expect
    .poll(async () => {
      const last = before;
      before = await top();
      return before.seq === last.seq && before.top === last.top;
    })
    .toBe(true);
  await room.api.sendAll(
    room.channel,
    Array.from({ length: 300 }, (_, i) => `new ${i}`),
  );
  await expect(chat.page.getByTestId("jump")).toContainText("300");
  const after = await top();
  expect(after.seq).toBe(before.seq);
  expect(Math.abs(after.top - before.top), "pixels by which it moved").toBeLessThanOrEqual(2);
  await chat.page.getByTestId("jump").click();
  await expect(chat.message("new 299")).toBeVisible();
  await expectExactly(chat, await room.api.history(room.channel));
});
