import { expectExactly, expectOnce } from "./rig/judge.ts";
import { expect, test } from "./rig/test.ts";

test("two tabs send, and each receives the messages of both", async ({ room, enter }) => {
  const [ann, ben] = await Promise.all([enter("ann"), enter("ben")]);
  const sent: Record<string, string[]> = { ann: [], ben: [] };
  for (let i = 0; i < 5; i++) {
    await ann.send(`ann says ${i}`);
    await ben.send(`ben says ${i}`);
    sent.ann?.push(`ann says ${i}`);
    sent.ben?.push(`ben says ${i}`);
  }
  for (const chat of [ann, ben]) {
    await expect(chat.message("ann says 4")).toBeVisible();
    await expect(chat.message("ben says 4")).toBeVisible();
  }
  const messages = await room.api.history(room.channel);
  expectOnce(messages, sent);
  await expectExactly(ann, messages);
  await expectExactly(ben, messages);
});

test("an edit and a recall reach the other tab, and only one's own messages can be changed", async ({
  room,
  enter,
}) => {
  const [ann, ben] = await Promise.all([enter("ann"), enter("ben")]);
  await ann.send("the frist thing");
  await ann.send("a secret");
  await ben.send("from ben");
  await expect(ann.message("from ben")).toBeVisible();

  const frist = ann.message("the frist thing");
  await frist.hover();
  await frist.getByTestId("edit").click();
  await ann.page.getByTestId("editor").fill("the first thing");
  await ann.page.getByTestId("save").click();
  await expect(ben.message("the first thing")).toHaveAttribute("data-status", "edited");
  await expect(ben.page.getByText("the frist thing")).toHaveCount(0);

  const secret = ann.message("a secret");
  await secret.hover();
  await secret.getByTestId("recall").click();
  await ann.page.getByTestId("confirm-recall").click();
  for (const chat of [ann, ben]) {
    await expect(chat.page.locator("[data-testid=message][data-status=recalled]")).toHaveCount(1);
    expect(await chat.page.content()).not.toContain("a secret");
  }

  const other = ben.message("the first thing");
  await other.hover();
  await expect(other.getByTestId("edit")).toHaveCount(0);
  await expect(other.getByTestId("recall")).toHaveCount(0);

  const messages = await room.api.history(room.channel);
  await expectExactly(ann, messages);
  await expectExactly(ben, messages);
});

test.describe("without a network", () => {
  test.use({ faults: true });

  test("an edit stays in its field until the server has it", async ({ enter, room }) => {
    const ann = await enter("ann");
    const { page } = ann;
    await ann.send("befroe");
    await ann.sent();
    room.network.cut();
    await ann.composer.press("ArrowUp");
    await page.getByTestId("editor").fill("after");
    await page.getByTestId("editor").press("Enter");
    await expect(page.getByTestId("save")).toHaveText("Saving…");
    await expect(page.getByTestId("save")).toBeDisabled();
    await expect(page.getByTestId("state")).toHaveAttribute("data-state", "waiting");
    await expect(page.getByTestId("editor")).toHaveValue("after");
    room.network.heal();
    await expect(page.getByTestId("editor")).toHaveCount(0);
    await expect(ann.message("after")).toHaveAttribute("data-status", "edited");
  });
});

test("the page shows who is typing until the message arrives", async ({ enter }) => {
  const [ann, ben] = await Promise.all([enter("ann"), enter("ben")]);
  await ann.composer.pressSequentially("I am writ");
  await expect(ben.page.getByTestId("typing")).toContainText("ann");
  await expect(ann.page.getByTestId("typing")).not.toContainText("ann");
  await ann.send("done");
  await expect(ben.message("done")).toBeVisible();
  await expect(ben.page.getByTestId("typing")).not.toContainText("ann");
});

test("unread messages are counted, follow a divider, and are marked as read", async ({ room, enter }) => {
  // A user of this test only: the title counts the unread messages of all the user's channels,
  // including those of other tests.
  const user = `reader-of-${room.channel}`;
  const ben = await enter(user);
  await ben.send("I was here");
  await ben.sent();
  const elsewhere = `${room.channel}-b`;
  const { page } = ben;
  await page.getByTestId("channel-name").fill(elsewhere);
  await page.getByTestId("channel-name").press("Enter");
  await expect(page.getByTestId("title")).toContainText(elsewhere);
  for (const text of ["one", "two", "three"]) {
    await room.api.send(room.channel, text);
  }
  await expect(page.getByTestId(`unread-${room.channel}`)).toHaveText("3");
  await expect(page).toHaveTitle(/3/);

  await page.reload();
  await expect(page.getByTestId(`unread-${room.channel}`)).toHaveText("3");
  await page.getByTestId(`channel-${room.channel}`).click();
  await expect(ben.message("three")).toBeVisible();
  await expect(page.getByTestId("divider")).toHaveCount(1);
  await expect(page.getByTestId(`unread-${room.channel}`)).toHaveCount(0);

  // The server stored the cursor too: another profile of the same user has nothing unread.
  const own = await enter(user);
  await expect(own.page.getByTestId(`channel-${room.channel}`)).toBeVisible();
  await expect(own.page.getByTestId(`unread-${room.channel}`)).toHaveCount(0);
});

test("content is shown as text, whatever it contains", async ({ room, enter }) => {
  const texts = [
    "<img src=x onerror=alert(1)><script>alert(2)</script>",
    "<b>bold</b> &amp; &lt;i&gt; \"quotes\" 'too'",
    "javascript:alert(3) data:text/html,<script>alert(4)</script>",
    "look: https://example.org/a?b=<c>&d='e'#f, and http://example.org/\"onmouseover=\"alert(5)",
    "two\nlines\n\n  and spaces  ",
    "שלום עולם, \u202eabc\u202c",
    "👩‍👩‍👧‍👦 🏳️‍🌈 e\u0301",
    `${"longword".repeat(400)}`,
    "$& $1 {{x}} %s __proto__ constructor",
  ];
  const ann = await enter("ann");
  for (const text of texts) {
    await room.api.send(room.channel, text);
  }
  await ann.send(texts[0] ?? "");
  await ann.sent();
  const messages = await room.api.history(room.channel);
  expect(messages.map((m) => m.content)).toEqual([...texts, texts[0]]);
  await expectExactly(ann, messages);

  const links = ann.log.locator("[data-testid=content] a");
  for (const link of await links.all()) {
    expect(await link.getAttribute("href")).toMatch(/^https?:\/\/example\.org\//);
    expect(await link.getAttribute("rel")).toBe("noopener noreferrer");
  }
  await expect(links).toHaveCount(2);
  await expect(ann.log.locator("[data-testid=content] :not(a), [onerror], [onmouseover], script")).toHaveCount(0);
  const sideways = await ann.log.evaluate((log) => log.scrollWidth - log.clientWidth);
  expect(sideways, "a long word wraps").toBeLessThanOrEqual(0);
});
