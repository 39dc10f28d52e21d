import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const repository = resolve(import.meta.dirname, "../../../..");

/**
 * binary returns the path of a program: the value of the environment variable PARLEYD or PARLEY if
 * it is set, otherwise the program that `make build` builds.
 */
export function binary(name: "parleyd" | "parley"): string {
  return process.env[name.toUpperCase()] ?? join(repository, "bin", name);
}

/**
 * The heartbeat interval of the tested servers, in milliseconds. A stream without a frame for 2.5
 * intervals is dead.
 */
export const heartbeat = 1_000;

export interface ServerOptions {
  tls?: boolean;
  /** The heartbeat interval in milliseconds. The default is heartbeat. */
  heartbeat?: number;
}

/**
 * Server is a `parleyd dev` with its own temporary data directory. It keeps its address over
 * restarts. Close it when done.
 */
export class Server {
  readonly dir = mkdtempSync(join(tmpdir(), "parley-e2e-"));
  /** The address of the API and the page, as http://127.0.0.1:port. Set by start. */
  url = "";
  #child: ChildProcess | undefined;
  readonly #options: ServerOptions;

  constructor(options: ServerOptions = {}) {
    this.#options = options;
  }

  get port(): number {
    return Number(new URL(this.url).port);
  }

  /** start starts or restarts the server and waits until it is ready. */
  async start(): Promise<void> {
    const addressFile = join(this.dir, "dev-addr");
    rmSync(addressFile, { force: true });
    const listen = this.url === "" ? "127.0.0.1:0" : new URL(this.url).host;
    const args = ["dev", "--listen", listen, "--ops-listen", "127.0.0.1:0", "--data-dir", this.dir];
    if (this.#options.tls) {
      args.push("--tls");
    }
    const child = spawn(binary("parleyd"), args, {
      stdio: ["ignore", "ignore", "pipe"],
      env: { ...process.env, PARLEY_LIMITS_HEARTBEAT_INTERVAL: `${this.#options.heartbeat ?? heartbeat}ms` },
    });
    this.#child = child;
    let log = "";
    child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      log += text;
    });
    const failed = new Promise<never>((_, reject) => {
      child.once("error", reject);
      child.once("exit", (code, signal) => reject(new Error(`parleyd ended (${code ?? signal}):\n${log}`)));
    });
    failed.catch(() => {}); // After it is ready, only kill and close end it.
    this.url = await Promise.race([failed, this.#ready(addressFile)]);
  }

  async #ready(addressFile: string): Promise<string> {
    for (;;) {
      try {
        const url = readFileSync(addressFile, "utf8").trim();
        if (url !== "") {
          return url;
        }
      } catch {
        // The server has not written the file yet.
      }
      await sleep(10);
    }
  }

  /** freeze stops the process: its connections stay open, and nobody answers. */
  async freeze(): Promise<void> {
    const pid = this.#child?.pid ?? 0;
    process.kill(pid, "SIGSTOP");
    while (!isStopped(pid)) {
      await sleep(5);
    }
  }

  /** thaw lets a frozen process continue. */
  thaw(): void {
    process.kill(this.#child?.pid ?? 0, "SIGCONT");
  }

  /** kill ends the server as a crash does: it writes nothing and does not end its streams. */
  async kill(): Promise<void> {
    await this.#end("SIGKILL");
  }

  /** close ends the server and removes its data. */
  async close(): Promise<void> {
    await this.#end("SIGTERM");
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 });
  }

  async #end(signal: "SIGKILL" | "SIGTERM"): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) {
      return;
    }
    const ended = new Promise((done) => child.once("exit", done));
    child.kill("SIGCONT"); // A frozen process ends only when it continues.
    child.kill(signal);
    await ended;
  }

  /**
   * token returns a token for a user with the given capabilities. The default is those of a chat
   * user.
   */
  token(user: string, ...capabilities: string[]): string {
    const caps = capabilities.length > 0 ? capabilities : ["channel:*=send,history,subscribe"];
    const args = ["--data-dir", this.dir, "token", "--sub", user, ...caps.flatMap((cap) => ["--cap", cap])];
    return execFileSync(binary("parley"), args, { encoding: "utf8" }).trim();
  }
}

/** family returns the ids of a process and of all its descendants. */
export function family(pid: number): number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync("/proc")) {
    if (/^\d+$/.test(name)) {
      const parent = parentOf(Number(name));
      children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
    }
  }
  const found = [pid];
  for (const one of found) {
    found.push(...(children.get(one) ?? []));
  }
  return found;
}

/**
 * signal sends a signal to a process and reports whether the process exists: a process of Chromium
 * may end at any time.
 */
export function signal(pid: number, name: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, name);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ESRCH") {
      return false;
    }
    throw error;
  }
}

function parentOf(pid: number): number {
  return Number(field(pid, 1));
}

/** isStopped reports whether a signal stopped a process. */
export function isStopped(pid: number): boolean {
  return field(pid, 0) === "T";
}

/**
 * field returns a field of /proc/pid/stat. Index 0 is the first field after the name, which may
 * contain any character. It returns an empty string if the process does not exist.
 */
function field(pid: number, index: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[index] ?? "";
  } catch {
    return "";
  }
}
