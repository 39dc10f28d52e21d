import type * as pb from "@parleyhq/api/parley/v1/presence_pb.js";
import { expect } from "vitest";
import type { Client, Presence, PresenceEvent, PresenceOptions } from "../src/index.js";
import type { Fake } from "./fake.js";
import { eventually, States } from "./helper.js";

/** connect opens a presence with a device, whose states it records. */
export function connect(client: Client, options: PresenceOptions = {}, states = new States()): Presence {
  return client.presence({ platform: "WEB", deviceId: "tab-1", onState: states.onState, ...options });
}

/** isLive waits until the presence is live. */
export async function isLive(presence: Presence): Promise<void> {
  await eventually(() => presence.state === "live");
}

/** text describes an event: "ann WEB IOS(background)", "ann" if offline, "room 1/2 ann bob". */
function text(e: PresenceEvent): string {
  switch (e.kind) {
    case "user":
      return [e.user.userId, ...e.user.platforms.map((p) => `${p.platform}${p.background ? "(background)" : ""}`)].join(
        " ",
      );
    case "channel": {
      const { channelId, onlineCount, memberCount, online } = e.channel;
      return [`${channelId} ${onlineCount}/${memberCount}`, ...(online?.keys() ?? ["no list"])].join(" ");
    }
    case "user_lost":
      return `${e.userId} lost`;
    case "channel_lost":
      return `${e.channelId} lost`;
    default:
      return `lagging ${e.lagging}`;
  }
}

/** want takes as many events as are wanted and compares their texts. */
export async function want(presence: Presence, ...events: string[]): Promise<void> {
  const got: string[] = [];
  while (got.length < events.length) {
    got.push(text(await presence.next(AbortSignal.timeout(20_000))));
  }
  expect(got).toEqual(events);
}

/** wantQuiet fails if an event arrives within 60 ms. */
export async function wantQuiet(presence: Presence): Promise<void> {
  const moment = AbortSignal.timeout(60);
  const e = await presence.next(moment).catch((err) => {
    if (err !== moment.reason) {
      throw err;
    }
  });
  expect(e).toBeUndefined();
}

/** connects returns the requests of Connect. */
export const connects = (server: Fake) => server.of<pb.ConnectRequest>("Connect");
