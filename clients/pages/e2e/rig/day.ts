import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "@playwright/test";
import type { Api, Message } from "./api.ts";
import type { Chat } from "./chat.ts";
import { expectExactly, row } from "./judge.ts";
import { binary } from "./process.ts";
import { everything, type Room } from "./test.ts";

/** ReplayOptions selects the log to replay and the speed. */
export interface ReplayOptions {
  /** The log's path. */
  file: string;
  /** The factor by which the replay is faster than the log. */
  speed: number;
  /** Called at each step with a name for its screenshots and a description. */
  tell?: (moment: string, text: string) => Promise<void>;
}

/**
 * replay imports a log into a room at a multiple of its own speed, as `parley import` does. One tab
 * shows it live. At a quarter of the log a second tab starts to scroll back to the first line while
 * the import continues. At half of the log the server is killed and started again. In the end the
 * store and both tabs must have the log exactly: every message of the file, once, in order, with
 * its sender and text.
 */
export async function replay(room: Room, live: Chat, back: Chat, options: ReplayOptions): Promise<void> {
  const { speed, tell = async () => {} } = options;
  const day = parseLog(readFileSync(options.file), basename(options.file));
  const began = Date.now();
  const importing = startImport(room, options);
  const done = importing.done.then(async (code) => {
    await tell("imported", `the import ended with ${code} after ${seconds(began)}: ${importing.output().trim()}`);
    return code;
  });

  const quarter = await reached(room, day.length / 4, done);
  await showsLive(live, quarter);
  await tell("quarter", `${quarter} of ${day.length} messages; the second tab scrolls back`);
  const scrolled = scrollBack(back).then(async () => {
    expect(importing.process.exitCode, "the first line is reached while the replay goes on").toBeNull();
    await tell("first-line", `the second tab shows the first line after ${seconds(began)}`);
  });

  const half = await reached(room, day.length / 2, done);
  await room.server.kill();
  await expect(live.state).not.toHaveAttribute("data-state", "live");
  await tell("killed", `the server was killed at ${half} messages`);
  await room.server.start();
  await live.live();
  await tell("started", "the server was started again, and the first tab is live");
  await scrolled;

  await showsLive(live, await reached(room, (3 * day.length) / 4, done));
  expect(await back.inSight(1), "the second tab still shows the first line").toBe(true);
  expect(await done, importing.output()).toBe(0);

  const stored = await room.api.history(room.channel);
  expect(stored.map(row)).toEqual(day.map(row));
  expect(stored.map((m) => m.clientMsgId)).toEqual(day.map((m) => m.clientMsgId));
  await live.reaches(day.length);
  await tell("end", `the store holds the day: ${day.length} messages at ${speed} times their speed`);
  await expectExactly(live, day);
  await expectExactly(back, day);
  await tell("judged", `both tabs hold the day exactly, after ${seconds(began)}`);
}

/**
 * parseLog parses a log without the importer's code, because it must not share the importer's
 * mistakes.
 */
export function parseLog(data: Uint8Array, name: string): Message[] {
  const messages: Message[] = [];
  const lines = Buffer.from(data).toString("latin1").split("\n"); // One character per byte, until the text is decoded.
  for (const [i, ended] of lines.entries()) {
    const line = ended.replace(/\r$/, "");
    const parts = /^\[\d\d:\d\d\] (?:<(?<nick>[^>]+)>| \* (?<actor>[^ ]+))(?<text>.*)$/s.exec(line)?.groups;
    if (line.startsWith("===") || parts === undefined) {
      continue;
    }
    const text = (parts.text ?? "").replace(/^ /, "");
    messages.push({
      seq: messages.length + 1,
      sender: encode(parts.nick ?? parts.actor ?? ""),
      type: parts.nick === undefined ? "action" : "text",
      status: "sent",
      content: decode(isBlank(text) ? line : text),
      clientMsgId: encode(`${name}:${i + 1}`),
    });
  }
  return messages;
}

function isBlank(latin1: string): boolean {
  return decode(latin1).trim() === "";
}

/** encode returns bytes as an id: printable ASCII without spaces, the rest percent-encoded. */
function encode(latin1: string): string {
  return latin1.replace(/[^!-$&-~]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`);
}

/** decode decodes UTF-8, with one U+FFFD for NUL and for each byte that belongs to no character. */
function decode(latin1: string): string {
  const bytes = Buffer.from(latin1, "latin1");
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let i = 0; i < bytes.length; ) {
    let size = 1;
    let character: string | undefined;
    for (; character === undefined && size <= 4 && i + size <= bytes.length; size++) {
      try {
        character = decoder.decode(bytes.subarray(i, i + size));
      } catch {
        // The character is incomplete or invalid.
      }
    }
    text += character === undefined || character === "\0" ? "\ufffd" : character;
    i += character === undefined ? 1 : size - 1;
  }
  return text;
}

interface Import {
  process: ChildProcess;
  /** Resolves with the exit code when the import has ended. */
  done: Promise<number | null>;
  output: () => string;
}

function startImport(room: Room, { file, speed }: ReplayOptions): Import {
  const args = ["import", file, "--channel", room.channel, "--speed", String(speed)];
  const env = { ...process.env, PARLEY_ADDR: room.server.url, PARLEY_TOKEN: room.server.token("importer", everything) };
  const child = spawn(binary("parley"), args, { env, stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (more: string) => {
      text += more;
    });
  }
  return { process: child, done: once(child, "close").then(([code]) => code as number | null), output: () => text };
}

/** reached waits until the channel has at least count messages, and returns how many it has. */
async function reached(room: Room, count: number, done: Promise<unknown>): Promise<number> {
  let over = false;
  void done.then(() => {
    over = true;
  });
  for (;;) {
    const last = over;
    const head = await headSeq(room.api, room.channel);
    if (head >= count) {
      return head;
    }
    expect(last, `the import ended at ${head} messages`).toBe(false);
    await sleep(100);
  }
}

async function headSeq(api: Api, channelId: string): Promise<number> {
  const page = await api.call<{ headSeq?: string }>("ListMessages", { channelId, pageSize: 1 });
  return Number(page.headSeq ?? 0);
}

/** showsLive waits until the last row of a tab is the message at seq or a later one. */
async function showsLive(chat: Chat, seq: number): Promise<void> {
  const last = chat.page.getByTestId("message").last();
  await expect.poll(async () => Number(await last.getAttribute("data-seq"))).toBeGreaterThanOrEqual(seq);
  await expect(last).toBeInViewport();
}

/** scrollBack turns the mouse wheel until the first line is visible. */
async function scrollBack(chat: Chat): Promise<void> {
  await chat.log.hover();
  while (!(await chat.inSight(1))) {
    await chat.page.mouse.wheel(0, -300);
    await sleep(50);
  }
}

function seconds(since: number): string {
  return `${((Date.now() - since) / 1000).toFixed(1)} s`;
}
