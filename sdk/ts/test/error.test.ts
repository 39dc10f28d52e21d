import { ConnectError } from "@connectrpc/connect";
import { ErrorReason, StatusCode } from "@parleyhq/api/parley/v1/error_pb.js";
import { describe, expect, it } from "vitest";
import { itemError, toError } from "../src/error.js";
import { Code } from "../src/index.js";
import { failure } from "./fake.js";

/**
 * bare creates an error without a detail, as Connect does: 2.2 reports whether it came from the
 * server, 2.1 does not.
 */
function bare(code: Code, isWireError: boolean | undefined): ConnectError {
  return Object.assign(new ConnectError("", code), { isWireError });
}

describe("an error without a detail", () => {
  const outcome = (code: Code, wire?: boolean) => {
    const { retryable, unanswered } = toError(bare(code, wire));
    return { retryable, unanswered };
  };

  it("that the server sent is retryable according to its code", () => {
    for (const code of [Code.Unavailable, Code.DeadlineExceeded, Code.Aborted, Code.Canceled]) {
      expect(outcome(code, true), Code[code]).toEqual({ retryable: true, unanswered: false });
    }
    for (const code of [Code.PermissionDenied, Code.Internal, Code.InvalidArgument, Code.Unknown]) {
      expect(outcome(code, true), Code[code]).toEqual({ retryable: false, unanswered: false });
    }
  });

  it("that the client raised is retryable, with two exceptions", () => {
    for (const code of [Code.Unknown, Code.Internal, Code.InvalidArgument, Code.Unavailable]) {
      expect(outcome(code, false), Code[code]).toEqual({ retryable: true, unanswered: true });
    }
    for (const code of [Code.ResourceExhausted, Code.Unimplemented]) {
      expect(outcome(code, false), Code[code]).toEqual({ retryable: false, unanswered: true });
    }
  });

  it("is attributed by its code if Connect does not report its origin", () => {
    expect(outcome(Code.PermissionDenied)).toEqual({ retryable: false, unanswered: false });
    expect(outcome(Code.Unauthenticated)).toEqual({ retryable: false, unanswered: false });
    expect(outcome(Code.Aborted)).toEqual({ retryable: true, unanswered: false });
    // Connect's client also raises this code for a truncated stream.
    expect(outcome(Code.InvalidArgument)).toEqual({ retryable: true, unanswered: true });
    expect(outcome(Code.Unknown)).toEqual({ retryable: true, unanswered: true });
  });
});

describe("an error with a detail", () => {
  it("has its reason, whoever raised it", () => {
    const error = failure(Code.ResourceExhausted, ErrorReason.NODE_FULL);
    expect(toError(error)).toMatchObject({ reason: "NODE_FULL", retryable: true, unanswered: false });
  });
});

describe("an item's error", () => {
  it("has the code with its number", () => {
    const names = Object.keys(StatusCode).filter((name) => Number.isNaN(Number(name)) && name !== "UNSPECIFIED");
    expect(names.length).toBe(16);
    for (const name of names) {
      const code = StatusCode[name as keyof typeof StatusCode];
      const known = Code[itemError({ code } as never).code]?.replace(/([a-z])([A-Z])/g, "$1_$2").toUpperCase();
      expect(known, name).toBe(name.replace("CANCELLED", "CANCELED"));
    }
    for (const code of [0, 17, 99]) {
      expect(itemError({ code } as never)).toMatchObject({ code: Code.Unknown, retryable: false });
    }
    expect(itemError({ code: StatusCode.ABORTED } as never).retryable).toBe(true);
  });
});
