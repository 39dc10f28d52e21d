import type { MessageInitShape } from "@bufbuild/protobuf";
import { type Client, createClient } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";
import { AdminService } from "@parleyhq/api/parley/v1/admin_pb.js";
import { type Delivery, type NackItemSchema, QueueService } from "@parleyhq/api/parley/v1/queue_pb.js";
import { expect, type Page } from "@playwright/test";
import { abortable } from "../../../../sdk/ts/src/fetch.ts";

/** The capabilities of an operator who also produces and consumes. */
export const operator = ["admin", "queue:*=produce,consume"];

/** Numbers are the API's counts of a topic with one group, which the page shows in its tiles. */
export interface Numbers {
  waiting: number;
  running: number;
  retrying: number;
  scheduled: number;
  dead: number;
  consumers: number;
}

/** Work is a session of the group `workers` and its deliveries. */
export interface Work {
  session: string;
  deliveries: Delivery[];
}

type NackOutcome = NonNullable<MessageInitShape<typeof NackItemSchema>["outcome"]>;

/** Queues calls a server's queue services directly, not through the page. */
export class Queues {
  readonly admin: Client<typeof AdminService>;
  readonly queue: Client<typeof QueueService>;

  constructor(baseUrl: string, token: string) {
    const transport = createConnectTransport({
      baseUrl,
      // Without it an ended consumer can keep its connection.
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
    await this.admin.createGroup({ topic: name, group: { name: "workers" } });
  }

  /** produce produces a message for each payload, due after a delay in seconds. */
  async produce(topic: string, payloads: (string | Uint8Array)[], delay = 0): Promise<void> {
    const bytes = (payload: string | Uint8Array) =>
      typeof payload === "string" ? new TextEncoder().encode(payload) : payload;
    const messages = payloads.map((payload, i) => ({
      key: `key-${i}`,
      payload: bytes(payload),
      headers: { origin: "e2e" },
      ...(delay > 0 && { due: { case: "delay" as const, value: { seconds: BigInt(delay) } } }),
    }));
    const { results } = await this.queue.produce({ topic, messages });
    for (const { result } of results) {
      expect(result.case).toBe("produced");
    }
  }

  /**
   * consume receives n deliveries as a consumer of `workers`, calls settle with them, and leaves.
   */
  async consume(topic: string, n: number, settle: (work: Work) => Promise<void>): Promise<void> {
    const end = new AbortController();
    const work: Work = { session: "", deliveries: [] };
    try {
      const request = { topics: [topic], group: "workers", consumer: "e2e-worker", concurrency: n };
      for await (const { frame } of this.queue.consume(request, { signal: end.signal })) {
        if (frame.case === "started") {
          work.session = frame.value.sessionId;
        } else if (frame.case === "deliveries") {
          work.deliveries.push(...frame.value.deliveries);
        }
        if (work.deliveries.length >= n) {
          await settle(work);
          await this.queue.leave({ sessionId: work.session });
          return;
        }
      }
    } finally {
      end.abort();
    }
  }

  async ack(work: Work, deliveries = work.deliveries): Promise<void> {
    const { results } = await this.queue.ack({ sessionId: work.session, tokens: deliveries.map((d) => d.token) });
    expect(results.filter((r) => r.error)).toEqual([]);
  }

  /** bury nacks deliveries so that they become dead letters. */
  async bury(work: Work, deliveries = work.deliveries): Promise<void> {
    await this.#nack(work, deliveries, { case: "deadLetter", value: {} });
  }

  /** fail nacks deliveries so that they are retried in ten minutes. */
  async fail(work: Work, deliveries = work.deliveries): Promise<void> {
    await this.#nack(work, deliveries, { case: "retry", value: { delay: { seconds: 600n } } });
  }

  async #nack(work: Work, deliveries: Delivery[], outcome: NackOutcome): Promise<void> {
    const items = deliveries.map((d) => ({ token: d.token, reason: "cannot do it", code: "POISON", outcome }));
    const { results } = await this.queue.nack({ sessionId: work.session, items });
    expect(results.filter((r) => r.error)).toEqual([]);
  }

  async numbers(topic: string): Promise<Numbers> {
    const { total } = await this.admin.getTopicStats({ topic });
    const group = total?.groups[0];
    return {
      waiting: Number(group?.waiting),
      running: Number(group?.running),
      retrying: Number(group?.retrying),
      scheduled: Number(total?.scheduled),
      dead: Number(total?.deadLetters),
      consumers: group?.sessions ?? 0,
    };
  }
}

/** shown returns the counts that the page shows in a topic's tiles. See Numbers. */
export async function shown(page: Page): Promise<Record<string, number>> {
  const numbers: Record<string, number> = {};
  for (const id of ["waiting", "running", "retrying", "scheduled", "dead", "consumers"]) {
    numbers[id] = Number((await page.getByTestId(`tile-${id}`).textContent())?.replaceAll(",", ""));
  }
  return numbers;
}
