import { expect, type Locator, type Page } from "@playwright/test";

/** Row is a message as the page shows it. */
export interface Row {
  seq: number;
  sender: string;
  type: string;
  status: string;
  content: string;
}

/**
 * Reading is the result of scrolling through the whole log: each message's row, and the rows that
 * were in the document together, from top to bottom.
 */
export interface Reading {
  rows: Row[];
  views: number[][];
}

/** Chat is the page in one tab. */
export class Chat {
  readonly page: Page;
  readonly state: Locator;
  readonly log: Locator;
  readonly composer: Locator;
  readonly pending: Locator;

  constructor(page: Page) {
    this.page = page;
    this.state = page.getByTestId("state");
    this.log = page.getByTestId("messages");
    this.composer = page.getByTestId("composer");
    this.pending = page.getByTestId("pending");
  }

  /** live waits until the page's stream is live. */
  async live(): Promise<void> {
    await expect(this.state).toHaveAttribute("data-state", "live");
  }

  async send(text: string): Promise<void> {
    await this.composer.fill(text);
    await this.composer.press("Enter");
    await expect(this.composer).toHaveValue("");
  }

  /** message returns the row of a stored message with exactly this text. */
  message(text: string): Locator {
    const content = this.page.getByTestId("content").getByText(text, { exact: true });
    return this.page.getByTestId("message").filter({ has: content });
  }

  /** sent waits until the server has confirmed all of the user's messages. */
  async sent(): Promise<void> {
    await expect(this.pending).toHaveCount(0, { timeout: 40_000 });
  }

  /** reaches waits until the last row is the message at seq. */
  async reaches(seq: number): Promise<void> {
    await expect(this.page.getByTestId("message").last()).toHaveAttribute("data-seq", String(seq), { timeout: 40_000 });
  }

  /** inSight reports whether a message is completely visible. */
  async inSight(seq: number): Promise<boolean> {
    return await this.log.evaluate((log, seq) => {
      const row = log.querySelector(`[data-testid=message][data-seq="${seq}"]`)?.getBoundingClientRect();
      const { top, bottom } = log.getBoundingClientRect();
      return row !== undefined && row.top >= top && row.bottom <= bottom;
    }, seq);
  }

  /** read scrolls from the newest message to the first. */
  async read(): Promise<Reading> {
    await this.page.bringToFront(); // A tab in the background draws one frame a second.
    return await this.log.evaluate(async (log) => {
      const rows = new Map<number, Row>();
      const views: number[][] = [];
      const frame = () => new Promise((done) => requestAnimationFrame(done));
      const settle = async () => {
        do {
          await frame();
          await frame();
        } while (log.dataset.loading === "true");
      };
      const collect = () => {
        const view: number[] = [];
        for (const row of log.querySelectorAll<HTMLElement>("[data-testid=message]")) {
          const { seq = "", from = "", type = "", status = "" } = row.dataset;
          const content = row.querySelector("[data-testid=content]")?.textContent ?? "";
          rows.set(Number(seq), { seq: Number(seq), sender: from, type, status, content });
          view.push(Number(seq));
        }
        views.push(view);
      };
      do {
        log.scrollTop = log.scrollHeight;
        await settle();
      } while (log.dataset.end !== "true");
      for (;;) {
        collect();
        const before = log.scrollTop;
        log.scrollBy({ top: -0.9 * log.clientHeight, behavior: "instant" });
        await settle();
        if (log.scrollTop === before && log.dataset.start === "true") {
          collect();
          return { rows: [...rows.values()].sort((a, b) => a.seq - b.seq), views };
        }
      }
    });
  }
}
