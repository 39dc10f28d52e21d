import { type Client, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AdminService } from "@parleyhq/api/parley/v1/admin_pb.js";
import { type Delivery, QueueService } from "@parleyhq/api/parley/v1/queue_pb.js";
import { expect, type Page } from "@playwright/test";
import { abortable } from "../../../../sdk/ts/src/fetch.ts";

/** The capabilities of an operator who also produces and consumes. */
export const operator = ["admin", "queue:*=produce,consume"];

/** Numbers are the API's counts of a topic with one group, which the page shows in its tiles. */
export interface Numbers {
  depth: number;
  unread: number;
  pending: number;
  retrying: number;
  delayed: number;
  dead: number;
  consumers: number;
}

/** Queues calls a server's queue services directly, not through the page. */
export class Queues {
  readonly admin: Client<typeof AdminService>;
  readonly queue: Client<typeof QueueService>;

  constructor(baseUrl: string, token: string) {
    const transport = createConnectTransport({
      baseUrl,
      // Without it an ended consumer can keep its connection, and its share of the messages.
      fetch: abortable(globalThis.fetch),
      interceptors: [
        (next) => (request) => {
          request.header.set("authorization", `Bearer ${token}`);
          return next(request);
        },
      ],
    });
    this.admin = createClient(AdminService, transport);
    this.queue = createClient(QueueService, transport);
  }

  /** make creates a topic with one group, `workers`. */
  async make(name: string, partitions = 2): Promise<void> {
    await this.admin.createTopic({ topic: { name, partitions } });
    await this.admin.createGroup({ topic: name, group: "workers" });
  }

  async produce(topic: string, payloads: (string | Uint8Array)[]): Promise<void> {
    const bytes = (payload: string | Uint8Array) =>
      typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
    const messages = payloads.map((payload, i) => ({
      key: `key-${i}`,
      payload: bytes(payload),
      headers: { origin: "e2e" },
    }));
    const { results } = await this.queue.produce({ topic, messages });
    for (const { result } of results) {
      expect(result.case).toBe("produced");
    }
  }

  /**
   * consume receives n deliveries as a consumer of `workers`, calls settle with them, and ends the
   * stream.
   */
  async consume(
    topic: string,
    n: number,
    settle: (streamId: string, deliveries: Delivery[]) => Promise<void>,
  ): Promise<void> {
    const end = new AbortController();
    const taken: Delivery[] = [];
    let streamId = "";
    try {
      const request = { topic, group: "workers", consumer: "e2e-worker", maxMessages: BigInt(n) };
      for await (const { frame } of this.queue.consume(request, { signal: end.signal })) {
        if (frame.case === "info") {
          streamId = frame.value.streamId;
        } else if (frame.case === "deliveries") {
          taken.push(...frame.value.deliveries);
        }
        if (taken.length >= n) {
          await settle(streamId, taken);
          return;
        }
      }
    } finally {
      end.abort();
    }
  }

  async ack(topic: string, streamId: string, deliveries: Delivery[]): Promise<void> {
    const tokens = deliveries.map((d) => d.token);
    const { results } = await this.queue.ack({ topic, group: "workers", streamId, tokens });
    expect(results.filter((r) => r.error)).toEqual([]);
  }

  /** bury nacks the deliveries so that they become dead letters. */
  async bury(topic: string, streamId: string, deliveries: Delivery[]): Promise<void> {
    const outcome = { case: "deadLetter" as const, value: {} };
    const items = deliveries.map((d) => ({ token: d.token, reason: "cannot do it", code: "POISON", outcome }));
    const { results } = await this.queue.nack({ topic, group: "workers", streamId, items });
    expect(results.filter((r) => r.error)).toEqual([]);
  }

  async numbers(topic: string): Promise<Numbers> {
    const { total } = await this.admin.getTopicStats({ topic });
    const group = total?.groups[0];
    return {
      depth: Number(total?.length),
      unread: Number(group?.unread),
      pending: Number(group?.pending),
      retrying: Number(group?.retrying),
      delayed: Number(total?.delayed),
      dead: Number(total?.deadLetters),
      consumers: group?.consumers ?? 0,
    };
  }
}

/** shown returns the counts that the page shows in a topic's tiles. See Numbers. */
export async function shown(page: Page): Promise<Record<string, number>> {
  const numbers: Record<string, number> = {};
  for (const id of ["depth", "unread", "pending", "retrying", "delayed", "dead", "consumers"]) {
    numbers[id] = Number((await page.getByTestId(`tile-${id}`).textContent())?.replaceAll(",", ""));
  }
  return numbers;
}
