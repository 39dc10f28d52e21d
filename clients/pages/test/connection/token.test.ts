import { describe, expect, test } from "vitest";
import { channelRights, sessionRights, splitFragment, subject } from "../../src/connection/token";

describe("token", () => {
  const token = (claims: object) => `h.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.s`;

  test("its user is parsed", () => {
    expect(subject(token({ sub: "auth0|42" }))).toBe("auth0|42");
    expect(subject(token({ sub: "größe" }))).toBe("größe");
  });

  test.each(["", "x", "a.b.c", "..", token({}), token({ sub: "" }), token({ sub: 7 })])(
    "none is read from %s",
    (text) => {
      expect(subject(text)).toBeNull();
    },
  );

  test("its rights on channels are read by the server's rule", () => {
    const cap = {
      "channel:team-*": ["send", "history"],
      "channel:all": ["subscribe"],
      "queue:team-a": ["send"],
      admin: true,
    };
    const can = channelRights(token({ sub: "ann", cap }));
    expect(can("send", "team-a")).toBe(true);
    expect(can("subscribe", "team-a")).toBe(false);
    expect(can("send", "team")).toBe(false);
    expect(can("subscribe", "all")).toBe(true);
    expect(can("subscribe", "all-2")).toBe(false);
    expect(channelRights(token({ sub: "ann", cap: { "channel:*": ["send"] } }))("send", "x")).toBe(true);
    expect(channelRights("garbage")("send", "x")).toBe(false);
  });

  test("its rights on sessions are those of its session capabilities only", () => {
    const cap = { "session:chat-*": ["append", "history"], "channel:*": ["subscribe"] };
    const can = sessionRights(token({ sub: "ann", cap }));
    expect(can("append", "chat-1")).toBe(true);
    expect(can("append", "other")).toBe(false);
    expect(can("subscribe", "chat-1")).toBe(false);
  });

  test("it is removed from the fragment, and the rest is kept", () => {
    expect(splitFragment("#token=a.b.c&channel=general")).toEqual({ token: "a.b.c", route: "#channel=general" });
    expect(splitFragment("#topic=jobs&view=dead&token=+x.y.z+")).toEqual({
      token: "x.y.z",
      route: "#topic=jobs&view=dead",
    });
    expect(splitFragment("#token=")).toEqual({ token: null, route: "" });
    expect(splitFragment("")).toEqual({ token: null, route: "" });
  });
});
