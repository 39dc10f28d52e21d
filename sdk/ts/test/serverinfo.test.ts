import { ErrorReason } from "@parleyhq/api/parley/v1/error_pb.js";
import { expect, it } from "vitest";
import { Code } from "../src/index.js";
import { Fake, failure } from "./fake.js";
import { newClient } from "./helper.js";

for (const protocol of ["connect", "grpc-web"] as const) {
  it(`a server describes itself, ${protocol}`, async () => {
    const server = new Fake();
    server.faults(1, "GetServerInfo", { error: failure(Code.Unavailable, ErrorReason.SHUTTING_DOWN) });
    expect(await newClient(server, { protocol }).serverInfo()).toEqual({
      version: "1.4.0",
      limits: {
        maxContentBytes: 65_536,
        maxBatchMessages: 0,
        maxChannelsPerStream: 500,
        maxStreamsPerSubject: 0,
        maxPayloadBytes: 0,
        maxProduceMessages: 0,
        maxConsumersPerSubject: 0,
        maxSessionContentBytes: 131_072,
        heartbeatInterval: 15_000,
      },
      features: ["QUEUES", "FEATURE_99"],
    });
    expect(server.requests.map((r) => [r.method, r.token])).toEqual(Array(2).fill(["GetServerInfo", "tester"]));
  });
}
