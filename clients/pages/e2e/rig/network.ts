import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/**
 * Network forwards TCP connections between a browser and a server. It can be cut and stalled. Close
 * it when done.
 */
export class Network {
  /** The port on which it listens. Set by start. */
  port = 0;
  readonly #target: number;
  readonly #server = createServer({ allowHalfOpen: true }, (socket) => this.#carry(socket));
  readonly #sockets = new Set<Socket>();
  #state: "up" | "cut" | "stalled" = "up";

  constructor(target: number) {
    this.#target = target;
  }

  async start(): Promise<void> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    this.port = (this.#server.address() as AddressInfo).port;
  }

  /** cut resets all connections and refuses new ones until heal. */
  cut(): void {
    this.#state = "cut";
    this.reset();
  }

  /** reset resets the existing connections. New ones are forwarded. */
  reset(): void {
    for (const socket of this.#sockets) {
      socket.resetAndDestroy();
    }
  }

  /**
   * stall keeps all connections and accepts new ones, but forwards nothing, so a peer never gets an
   * answer. The connections stay stalled after heal, as behind a router that lost their state.
   */
  stall(): void {
    this.#state = "stalled";
    for (const socket of this.#sockets) {
      socket.unpipe().pause();
    }
  }

  /** heal forwards new connections again. */
  heal(): void {
    this.#state = "up";
  }

  async close(): Promise<void> {
    this.reset();
    this.#server.close();
    await once(this.#server, "close");
  }

  #carry(browser: Socket): void {
    this.#keep(browser);
    if (this.#state === "cut") {
      browser.resetAndDestroy();
      return;
    }
    if (this.#state === "stalled") {
      browser.pause();
      return;
    }
    const server = connect(this.#target, "127.0.0.1");
    this.#keep(server);
    browser.pipe(server);
    server.pipe(browser);
    browser.once("close", () => server.destroy());
    server.once("close", () => browser.destroy());
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => socket.destroy()); // The other side reset it. The event close follows.
    socket.once("close", () => this.#sockets.delete(socket));
  }
}
