import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createConnectRouter } from "@connectrpc/connect";
import { createFetchHandler } from "@connectrpc/connect/protocol";
import { AdminService } from "@parleyhq/api/parley/v1/admin_pb.js";
import { ErrorDetailSchema, ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { ParleyError } from "@parleyhq/sdk";
import { afterEach, describe, expect, test, vi } from "vitest";
import { failure } from "../../src/connection/failure";
import { callLimit, serviceClient } from "../../src/connection/service";

const admin = () => serviceClient(AdminService, { address: "http://server", token: "secret" });

/** answered returns the failure of a call that the server answers with an error. */
async function answered(error: ConnectError) {
  const [handler] = createConnectRouter()
    .service(AdminService, {
      listTopics: (_, { requestHeader }) => {
        expect(requestHeader.get("authorization")).toBe("Bearer secret");
        throw error;
      },
    })
    .handlers.filter((one) => one.requestPath.endsWith("/ListTopics"));
  const serve = handler && createFetchHandler(handler);
  vi.stubGlobal("fetch", async (input: RequestInfo | URL, init?: RequestInit) => serve?.(new Request(input, init)));
  return failure(
    await admin()
      .listTopics({})
      .catch((cause) => cause),
  );
}

function detailed(text: string, code: Code, reason: ErrorReason, more: object = {}) {
  const detail = create(ErrorDetailSchema, { reason, ...more });
  return new ConnectError(text, code, undefined, [{ desc: ErrorDetailSchema, value: detail }]);
}

describe("failures", () => {
  afterEach(() => {
    vi.unstubAllGlobals();
    vi.useRealTimers();
  });

  test("the server's error is a sentence with the request id of its log", async () => {
    const error = detailed("topic jobs exists", Code.AlreadyExists, ErrorReason.TOPIC_EXISTS, { requestId: "r1" });
    expect(await answered(error)).toMatchObject({
      reason: "TOPIC_EXISTS",
      text: "Topic jobs exists (request r1).",
      remedy: "none",
    });
    const field = detailed("topic.name: too long", Code.InvalidArgument, ErrorReason.INVALID_FIELD, {
      field: "topic.name",
    });
    expect(await answered(field)).toMatchObject({ field: "topic.name", text: "topic.name: too long." });
  });

  test("a refused token, a missing capability and a busy server are distinguished", async () => {
    const expired = detailed("no", Code.Unauthenticated, ErrorReason.TOKEN_EXPIRED);
    expect(await answered(expired)).toMatchObject({ remedy: "token", text: "The token has expired." });
    expect(await answered(new ConnectError("no", Code.Unauthenticated))).toMatchObject({
      remedy: "token",
      text: "No.",
    });
    const denied = detailed("no", Code.PermissionDenied, ErrorReason.CAPABILITY_MISSING);
    expect(await answered(denied)).toMatchObject({ remedy: "capability" });
    const busy = detailed("slow", Code.ResourceExhausted, ErrorReason.RATE_LIMITED, {
      retryAfter: { seconds: 2n, nanos: 500_000_000 },
    });
    expect(await answered(busy)).toMatchObject({ remedy: "none", retryAfter: 2_500 });
  });

  test("an unreachable server, and one that does not answer in time", async () => {
    vi.stubGlobal("fetch", () => Promise.reject(new TypeError("Failed to fetch")));
    const away = await admin()
      .listTopics({})
      .catch((cause) => failure(cause));
    expect(away).toMatchObject({ reason: "", text: "The server can't be reached." });

    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    vi.stubGlobal(
      "fetch",
      (_: unknown, { signal }: RequestInit) =>
        new Promise((_resolve, reject) => signal?.addEventListener("abort", () => reject(signal.reason))),
    );
    const late = admin()
      .listTopics({})
      .catch((cause) => failure(cause));
    await vi.advanceTimersByTimeAsync(callLimit);
    expect(await late).toMatchObject({ reason: "", text: "The server did not answer in time." });
  });

  test("errors of the SDK, and other errors", () => {
    const cause = new ConnectError("x", Code.Unavailable, undefined, undefined, new TypeError("Failed to fetch"));
    expect(failure(new ParleyError({ code: Code.Unavailable, message: "fetch", cause }))).toMatchObject({
      text: "The server can't be reached.",
    });
    const positions = [{ channelId: "a", seq: 1, epoch: "e" }];
    expect(failure(new ParleyError({ reason: "NOT_MEMBER", positions, message: "no" }))).toMatchObject({
      channels: ["a"],
      text: "This channel is for members only, and you are not a member.",
    });
    expect(failure(new Error("gone away")).text).toBe("gone away");
    expect(failure("odd").text).toBe("odd");
  });
});
