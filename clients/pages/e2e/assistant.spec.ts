import type { Browser, BrowserContext } from "@playwright/test";
import { AssistantPage, Backend, talks } from "./rig/assistant.ts";
import { Server } from "./rig/process.ts";
import { test as common, expect } from "./rig/test.ts";

interface Fixtures {
  backend: Backend;
  /** visit opens the page in a new tab as a user, with a new browser profile or a given one. */
  visit: (
    user: string,
    where?: {
      context?: BrowserContext;
      options?: Parameters<Browser["newContext"]>[0];
      fragment?: string;
      capabilities?: string[];
    },
  ) => Promise<AssistantPage>;
}

const test = common.extend<Fixtures>({
  backend: async ({ server }, use) => {
    const backend = new Backend(server);
    await use(backend);
    backend.close();
  },

  visit: async ({ browser, room, watch }, use) => {
    const contexts: BrowserContext[] = [];
    await use(async (user, where = {}) => {
      let { context } = where;
      if (context === undefined) {
        context = await browser.newContext(where.options);
        contexts.push(context);
      }
      const page = await context.newPage();
      watch(page);
      const token = room.server.token(user, ...(where.capabilities ?? talks));
      await page.goto(`${room.url}/assistant#token=${token}${where.fragment ?? ""}`);
      const assistant = new AssistantPage(page);
      await assistant.live();
      return assistant;
    });
    for (const context of contexts) {
      await context.close();
    }
  },
});

test("a prompt begins a conversation, and its answer appears as it is written", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const { page } = ann;
  const id = await ann.ask("How do I restart it?\nQuickly, please.");
  await expect(page.getByTestId("title")).toHaveText("How do I restart it?");
  await expect(page.getByTestId(`session-${id}`)).toContainText("How do I restart it?");
  await expect(page.getByTestId("waiting")).toBeVisible();
  await expect(page).toHaveTitle("How do I restart it? · Assistant · Parley");
  const answer = await backend.answer(id, "With **make");
  await expect(ann.content(ann.answers)).toHaveText("With **make");
  await expect(page.getByTestId("waiting")).toHaveCount(0);
  await expect(page.getByTestId("transcript")).toHaveAttribute("aria-busy", "true");
  await expect(page.getByTestId(`session-${id}`)).toContainText("answering");
  await expect(page.getByTestId("progress")).toHaveText("The assistant is answering.");
  await answer.write(" dev**");
  await expect(ann.content(ann.answers)).toHaveText("With make dev");
  await expect(ann.content(ann.answers).locator("strong")).toHaveText("make dev");
  await answer.complete();
  await expect(ann.answers).toHaveAttribute("data-status", "sent");
  await expect(page.getByTestId("progress")).toHaveText("The answer is complete.");
  await expect(page.getByTestId("transcript")).toHaveAttribute("aria-busy", "false");
  expect((await backend.messages(id)).map((m) => [m.type, m.content])).toEqual([
    ["user", "How do I restart it?\nQuickly, please."],
    ["assistant", "With **make dev**"],
  ]);
});

test("a reload in mid-answer loses nothing", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const id = await ann.ask("Count");
  const answer = await backend.answer(id, "one, two");
  await expect(ann.content(ann.answers)).toHaveText("one, two");
  await ann.page.reload();
  await expect(ann.content(ann.answers)).toHaveText("one, two");
  await expect(ann.page.getByTestId("stop")).toBeVisible();
  await answer.write(", three");
  await expect(ann.content(ann.answers)).toHaveText("one, two, three");
  await ann.page.reload();
  await answer.write(", four");
  await expect(ann.content(ann.answers)).toHaveText("one, two, three, four");
  await answer.complete();
  await expect(ann.answers).toHaveAttribute("data-status", "sent");
  expect(await ann.texts()).toEqual(["Count", "one, two, three, four"]);
});

test("the stop button and Esc end an answer, and its generator", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const id = await ann.ask("Tell me a story");
  const first = await backend.answer(id, "Once upon a time");
  await expect(ann.content(ann.answers)).toHaveText("Once upon a time");
  await ann.page.getByTestId("stop").click();
  await expect(ann.answers).toHaveAttribute("data-status", "cancelled");
  await expect(ann.answers.getByTestId("note")).toHaveText("This answer was stopped.");
  await expect(ann.page.getByTestId("progress")).toHaveText("The answer was stopped.");
  await expect(ann.composer).toBeFocused();
  await expect(async () => {
    await first.write(" there").catch(() => {});
    expect(first.ended).toBe(true);
  }).toPass();
  expect(first.signal.reason).toMatchObject({ reason: "MESSAGE_CLOSED" });

  await ann.ask("Another one");
  const second = await backend.answer(id, "There was a king");
  await expect(ann.content(ann.answers.last())).toHaveText("There was a king");
  await ann.page.keyboard.press("Escape");
  await expect(ann.answers.last()).toHaveAttribute("data-status", "cancelled");
  await expect
    .poll(async () => (await backend.messages(id)).at(-1))
    .toMatchObject({
      status: "cancelled",
      content: "There was a king",
    });
  await second.fail().catch((err) => expect(err).toMatchObject({ reason: "MESSAGE_CLOSED" }));
});

test("a generator that fails leaves what it wrote, with a note", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const id = await ann.ask("Divide by zero");
  await (await backend.answer(id, "Let me see")).fail();
  await expect(ann.answers).toHaveAttribute("data-status", "failed");
  await expect(ann.answers.getByTestId("note")).toContainText("incomplete");
  await expect(ann.content(ann.answers)).toHaveText("Let me see");
});

test("an edited prompt, and one to which a new answer is wanted, are asked again", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const { page } = ann;
  const id = await ann.ask("What is 2 + 2?");
  await backend.say(id, "5");
  await expect(ann.content(ann.answers)).toHaveText("5");
  const prompts = backend.prompts(id);
  expect((await prompts.next()).kind).toBe("channel_state");

  await ann.answers.hover();
  await page.getByTestId("regenerate").click();
  await expect(ann.answers).toHaveCount(0);
  await expect(page.getByTestId("waiting")).toBeVisible();
  expect((await prompts.next()).kind).toBe("recalled");
  expect(await prompts.next()).toMatchObject({ kind: "edited", message: { type: "user", content: "What is 2 + 2?" } });
  await backend.say(id, "4");
  await expect(ann.content(ann.answers)).toHaveText("4");

  await ann.composer.press("ArrowUp");
  await expect(page.getByTestId("editor")).toBeFocused();
  await page.getByTestId("editor").fill("What is 2 + 3?");
  await page.keyboard.press("Enter");
  await expect(ann.answers).toHaveCount(0);
  await expect(ann.composer).toBeFocused();
  expect((await prompts.next()).kind).toBe("sent");
  expect((await prompts.next()).kind).toBe("recalled");
  expect(await prompts.next()).toMatchObject({ kind: "edited", message: { content: "What is 2 + 3?" } });
  await backend.say(id, "5");
  await expect(ann.content(ann.answers)).toHaveText("5");

  // An earlier prompt deletes the later ones, and so has to be confirmed.
  await ann.ask("And 3 + 3?");
  await backend.say(id, "6");
  await expect(ann.answers).toHaveCount(2);
  await ann.entries.first().hover();
  await ann.entries.first().getByTestId("edit").click();
  await page.getByTestId("editor").fill("What is 1 + 1?");
  await page.getByTestId("save").click();
  await page.getByTestId("cancel").last().click();
  await expect(ann.entries).toHaveCount(4);
  await page.getByTestId("save").click();
  await page.getByTestId("confirm").click();
  await expect(ann.entries).toHaveCount(1);
  await expect.poll(async () => (await backend.messages(id)).map((m) => m.content)).toEqual(["What is 1 + 1?"]);
  prompts.close();
});

test("two tabs stay in step", async ({ visit, backend }) => {
  const one = await visit("ann");
  const two = await visit("ann", { context: one.page.context() });
  const id = await one.ask("Hello from one");
  const row = two.page.getByTestId(`session-${id}`);
  await expect(row).toBeVisible();
  await row.click();
  await expect(two.content(two.entries)).toHaveText("Hello from one");
  const answer = await backend.answer(id, "Hello");
  for (const tab of [one, two]) {
    await expect(tab.content(tab.answers)).toHaveText("Hello");
  }
  await answer.write(" both");
  for (const tab of [one, two]) {
    await expect(tab.content(tab.answers)).toHaveText("Hello both");
  }
  await two.page.getByTestId("stop").click();
  for (const tab of [one, two]) {
    await expect(tab.answers).toHaveAttribute("data-status", "cancelled");
  }
  await one.page.getByTestId("rename").click();
  await expect(one.page.getByTestId("field-title")).toHaveValue("Hello from one");
  await one.page.getByTestId("field-title").fill("Greetings");
  await one.page.keyboard.press("Enter");
  for (const tab of [one, two]) {
    await expect(tab.page.getByTestId(`session-${id}`)).toContainText("Greetings");
    await expect(tab.page.getByTestId("title")).toHaveText("Greetings");
  }
  await two.page.getByTestId("delete").click();
  await two.page.getByTestId("confirm").click();
  for (const tab of [one, two]) {
    await expect(tab.page.getByTestId(`session-${id}`)).toHaveCount(0);
  }
  await expect(one.page.getByTestId("session-error")).toContainText("deleted");
  await expect(two.page.getByTestId("composer")).toBeVisible();
});

test("unread answers are counted in the list until they are seen", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const first = await ann.ask("First");
  await ann.page.getByTestId("new-session").click();
  const second = await ann.ask("Second");
  expect(second).not.toBe(first);
  await backend.say(first, "Answer to the first");
  await expect(ann.page.getByTestId(`unread-${first}`)).toHaveText("1");
  await ann.page.keyboard.press("Alt+ArrowUp");
  await expect(ann.content(ann.answers)).toHaveText("Answer to the first");
  await expect(ann.page.getByTestId(`unread-${first}`)).toHaveCount(0);
  await ann.page.reload();
  await expect(ann.content(ann.answers)).toHaveText("Answer to the first");
  await expect(ann.page.getByTestId(`unread-${first}`)).toHaveCount(0);
});

const hostile = `<script>alert(1)</script> <img src=x onerror=alert(2)> <b id="b">bold</b>

[one](javascript:alert(3)) [two](data:text/html;base64,PHNjcmlwdD4=) [three](https://example.com/ "title")
![picture](https://example.com/p.png) <https://example.org/auto> [four](/relative) [five](vbscript:x)

| <i onclick="alert(4)">a</i> | b |
|:-:|--:|
| \`<svg onload=alert(5)>\` | 2 |

\`\`\`"><img src=x onerror=alert(6)>
</code></pre><script>alert(7)</script>
\`\`\`

<style>body{display:none}</style><iframe src="https://example.com"></iframe><form action=x><input name=y></form>

[ref]: javascript:alert(8)
[six][ref]`;

test("an answer can contain nothing but text, links and its formatting", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const { page } = ann;
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  const id = await ann.ask("Try me");
  await (await backend.answer(id, hostile)).complete();
  await expect(ann.answers).toHaveAttribute("data-status", "sent");
  const content = ann.content(ann.answers);
  await expect(content).toContainText("<script>alert(1)</script>");
  await expect(content).toContainText("alert(7)");
  const found = await content.evaluate((root) => ({
    tags: [...new Set([...root.querySelectorAll("*")].map((e) => e.tagName.toLowerCase()))].sort(),
    attributes: [
      ...new Set([...root.querySelectorAll(".part *:not(.code-head *)")].flatMap((e) => e.getAttributeNames())),
    ].sort(),
    links: [...root.querySelectorAll("a")].map((a) => [a.getAttribute("href"), a.target, a.rel]),
  }));
  expect(
    found.tags.filter((tag) => ["script", "img", "svg", "iframe", "form", "input", "style", "b", "i"].includes(tag)),
  ).toEqual(
    // The icon of the button that copies.
    ["svg"],
  );
  expect(found.attributes.filter((name) => name.startsWith("on") || ["id", "style", "src"].includes(name))).toEqual([]);
  const safe = ["_blank", "noopener noreferrer"];
  expect(found.links.filter(([href]) => href !== null)).toEqual([
    ["https://example.com/", ...safe],
    ["https://example.com/p.png", ...safe],
    ["https://example.org/auto", ...safe],
  ]);
  await expect(content.locator("td").nth(1)).toHaveCSS("text-align", "end");
  expect(requests.filter((url) => url.includes("example."))).toEqual([]);
});

test("a prompt is text, not Markdown", async ({ visit }) => {
  const ann = await visit("ann");
  await ann.ask("**not bold** <b>neither</b>\n  # no heading");
  await expect(ann.content(ann.entries)).toHaveText("**not bold** <b>neither</b>\n  # no heading", {
    useInnerText: true,
  });
});

test("answers and code can be copied", async ({ visit, backend }) => {
  const ann = await visit("ann", { options: { permissions: ["clipboard-read", "clipboard-write"] } });
  const { page } = ann;
  const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
  const id = await ann.ask("Code, please");
  const text = 'Here:\n\n```go\nfmt.Println("<hello>")\n```\n';
  await (await backend.answer(id, text)).complete();
  await page.getByTestId("copy-code").click();
  await expect(page.getByTestId("copy-code")).toHaveAttribute("data-copied", "true");
  expect(await clipboard()).toBe('fmt.Println("<hello>")');
  await expect(page.locator(".code-head span").first()).toHaveText("go");
  await ann.answers.getByTestId("copy").click();
  expect(await clipboard()).toBe(text);
  await ann.entries.first().hover();
  await ann.entries.first().getByTestId("copy").click();
  expect(await clipboard()).toBe("Code, please");
});

test("every operation works by keyboard, and everything has a name", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const { page } = ann;
  const keys = page.keyboard;
  await expect(ann.composer).toBeFocused();
  await keys.type("one line");
  await keys.press("Shift+Enter");
  await keys.type("and another");
  await keys.press("Enter");
  await expect(ann.content(ann.entries)).toHaveText("one line\nand another", { useInnerText: true });
  const id = new URL(page.url()).hash.replace("#session=", "");
  await backend.say(id, "```\ncode\n```");
  await expect(ann.answers).toHaveCount(1);
  await keys.press("ArrowUp");
  await expect(page.getByTestId("editor")).toBeFocused();
  await keys.press("Escape");
  await expect(ann.composer).toBeFocused();

  const reached = new Set<string>();
  for (let i = 0; i < 40; i++) {
    await keys.press("Tab");
    const at = await page.evaluate(() => {
      const element = document.activeElement as HTMLElement;
      const style = getComputedStyle(element);
      const caret = element.matches("input, textarea");
      const ring = style.outlineStyle !== "none" || style.boxShadow !== "none";
      const tools = element.closest(".tools");
      const shown = tools === null || getComputedStyle(tools).opacity === "1";
      const name = element.getAttribute("aria-label") ?? element.textContent ?? "";
      return {
        id: element.dataset.testid ?? element.tagName,
        seen: (shown && (caret || ring)) || element === document.body,
        named: name.trim() !== "" || element === document.body,
      };
    });
    expect(at.seen, `the focus can be seen on ${at.id}`).toBe(true);
    expect(at.named, `${at.id} has a name`).toBe(true);
    reached.add(at.id);
  }
  for (const name of [
    "skip",
    "theme",
    "new-session",
    `session-${id}`,
    "rename",
    "delete",
    "edit",
    "copy",
    "copy-code",
    "regenerate",
    "composer",
  ]) {
    expect([...reached], name).toContain(name);
  }
});

test("a long conversation is loaded page by page, and the reader keeps their place", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const { page } = ann;
  const id = await ann.ask("prompt 0");
  for (let i = 1; i < 130; i++) {
    await backend.say(id, `answer ${i}`);
  }
  await page.reload();
  await expect(ann.content(ann.entries.last())).toHaveText("answer 129");
  await expect(ann.entries.last()).toBeInViewport();
  await expect(ann.entries).toHaveCount(100);
  const log = page.getByTestId("transcript");
  await log.evaluate((e) => {
    e.scrollTop = 150;
  });
  await expect(ann.entries).toHaveCount(130);
  await expect(log).toHaveAttribute("data-start", "true");
  await expect(ann.entries.filter({ hasText: "answer 31" })).toBeInViewport();
  await backend.say(id, "one more");
  await expect(ann.entries).toHaveCount(131);
  await expect(ann.entries.filter({ hasText: "answer 31" })).toBeInViewport();
  await page.getByTestId("jump").click();
  await expect(ann.entries.last()).toBeInViewport();
  await expect(page.getByTestId("jump")).toHaveCount(0);
});

test("a growing answer keeps a reader at its end, and leaves one who scrolled up", async ({ visit, backend }) => {
  const ann = await visit("ann");
  const { page } = ann;
  const id = await ann.ask("Go on and on");
  const answer = await backend.answer(id, "begin\n\n");
  const log = page.getByTestId("transcript");
  const fromEnd = () => log.evaluate((e) => e.scrollHeight - e.clientHeight - e.scrollTop);
  for (let i = 0; i < 30; i++) {
    await answer.write(`paragraph ${i}\n\n`);
  }
  await expect(ann.content(ann.answers)).toContainText("paragraph 29");
  expect(await fromEnd()).toBeLessThan(2);
  await log.hover();
  await page.mouse.wheel(0, -300);
  await expect(page.getByTestId("jump")).toBeVisible();
  const top = await log.evaluate((e) => e.scrollTop);
  await answer.write("the end\n\n");
  await expect(ann.content(ann.answers)).toContainText("the end");
  expect(await log.evaluate((e) => e.scrollTop)).toBe(top);
  await answer.complete();
});

for (const width of [390, 1_280]) {
  test(`nothing is wider than the page, ${width} px`, async ({ visit, backend }) => {
    const ann = await visit("ann", { options: { viewport: { width, height: 780 } } });
    const { page } = ann;
    await page.getByTestId("new-session").click();
    const id = await ann.ask(`A word: ${"x".repeat(300)}`);
    const code = `\`\`\`\n${"long ".repeat(100)}\n\`\`\``;
    const table = `|${" a |".repeat(30)}\n|${"---|".repeat(30)}\n|${" cell |".repeat(30)}`;
    await (await backend.answer(id, `${"y".repeat(300)}\n\n${code}\n\n${table}`)).complete();
    await expect(ann.answers).toHaveAttribute("data-status", "sent");
    const wide = await page.evaluate(() =>
      [document.documentElement, ...document.querySelectorAll(".pane, .transcript, .entry, .prose")]
        .filter((e) => e.scrollWidth > e.clientWidth + 1)
        .map((e) => e.className),
    );
    expect(wide).toEqual([]);
    if (width < 500) {
      await page.getByTestId("back").click();
      await expect(page.getByTestId(`session-${id}`)).toBeVisible();
      await expect(ann.composer).toBeHidden();
    }
  });
}

test("a token that can only read has no composer", async ({ visit, backend }) => {
  const writer = await visit("ann");
  const id = await writer.ask("Hello");
  await backend.say(id, "Hi");
  const reader = await visit("ann", { capabilities: ["session:*=history,subscribe"], fragment: `&session=${id}` });
  await expect(reader.content(reader.answers)).toHaveText("Hi");
  await expect(reader.page.getByTestId("no-composer")).toContainText("lacks the action append");
  for (const name of ["composer", "rename", "delete", "edit", "regenerate"]) {
    await expect(reader.page.getByTestId(name)).toHaveCount(0);
  }
});

test("a token without the capability says so", async ({ visit }) => {
  const ann = await visit("ann", { capabilities: ["channel:*=send"] });
  await ann.page.getByTestId("new-session").click();
  await expect(ann.page.getByTestId("no-composer")).toContainText("lacks the action append on sessions");
});

test("nobody sees the conversations of another user", async ({ visit }) => {
  const ann = await visit("ann");
  const id = await ann.ask("A secret");
  const ben = await visit("ben");
  await expect(ben.page.getByTestId("session-list")).not.toContainText("A secret");
  await ben.page.goto(`${new URL(ben.page.url()).origin}/assistant#session=${id}`);
  await expect(ben.page.getByTestId("session-error")).toContainText("no such conversation");
  await expect(ben.entries).toHaveCount(0);
});

test.describe("with faults", () => {
  test.use({ faults: true });

  test("a prompt that was written offline is sent later, also after a reload", async ({ visit, room, backend }) => {
    const ann = await visit("ann");
    const id = await ann.ask("First");
    room.network.cut();
    await expect(ann.state).not.toHaveAttribute("data-state", "live");
    await ann.composer.fill("Written offline");
    await ann.composer.press("Enter");
    await expect(ann.page.getByTestId("pending")).toHaveText("Written offline");
    await expect(ann.page.getByTestId("send")).toBeDisabled();
    room.network.heal();
    await ann.page.reload();
    await expect(ann.page.getByTestId("pending")).toHaveCount(0);
    await expect(ann.entries).toHaveCount(2);
    await expect
      .poll(async () => (await backend.messages(id)).map((m) => m.content))
      .toEqual(["First", "Written offline"]);
  });

  test("an answer goes on after the server was killed", async ({ browser, watch }) => {
    const server = new Server();
    await server.start();
    const backend = new Backend(server);
    const page = await (await browser.newContext()).newPage();
    try {
      watch(page);
      await page.goto(`${server.url}/assistant#token=${server.token("ann", ...talks)}`);
      const ann = new AssistantPage(page);
      await ann.live();
      const id = await ann.ask("Count");
      const answer = await backend.answer(id, "one");
      await expect(ann.content(ann.answers)).toHaveText("one");
      await server.kill();
      await answer.write(", two");
      await expect(ann.state).not.toHaveAttribute("data-state", "live");
      await server.start();
      await expect(ann.content(ann.answers)).toHaveText("one, two");
      await answer.write(", three");
      await expect(ann.content(ann.answers)).toHaveText("one, two, three");
      await answer.complete();
      await expect(ann.answers).toHaveAttribute("data-status", "sent");
      expect(await ann.texts()).toEqual(["Count", "one, two, three"]);
    } finally {
      backend.close();
      await page.context().close();
      await server.close();
    }
  });
});
