import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

/**
 * Network is what lies between a browser and a server: it carries TCP connections, and can be cut and stalled. Close it when
 * done.
 */
export class Network {
  /** Where it listens. Set by start. */
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

  /** reset breaks the connections that are there; new ones may be made at once. */
  reset(): void {
    for (const socket of this.#sockets) {
      socket.resetAndDestroy();
    }
  }

  /**
   * stall keeps all connections, and takes new ones, but carries nothing: what a peer sends is never answered. The connections
   * stay like that after heal, as behind a router that forgot them.
   */
  stall(): void {
    this.#state = "stalled";
    for (const socket of this.#sockets) {
      socket.unpipe().pause();
    }
  }

  /** heal carries new connections again. */
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
    socket.on("error", () => socket.destroy()); // The other side broke it; close follows.
    socket.once("close", () => this.#sockets.delete(socket));
  }
}
