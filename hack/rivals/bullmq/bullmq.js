// Runs the load of `parley bench queue` through BullMQ, for comparison. It adds jobs in bulk and
// processes them concurrently, on the Redis of --redis, which it empties first. It prints one JSON
// object, as ../asynq does.
import { parseArgs } from "node:util";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const { values } = parseArgs({
  options: {
    redis: { type: "string", default: "127.0.0.1:6379" },
    seconds: { type: "string", default: "4" },
    payload: { type: "string", default: "1024" },
    batch: { type: "string", default: "100" },
    concurrency: { type: "string", default: "64" },
    pickups: { type: "string", default: "5" },
  },
});
const batch = Number(values.batch);
const connection = values.redis.startsWith("/")
  ? { path: values.redis }
  : { host: values.redis.split(":")[0], port: Number(values.redis.split(":")[1]) };

const admin = new Redis(connection);
await admin.flushall();
const queue = new Queue("bench", { connection });

let done = 0;
let picked = () => {};
const worker = new Worker(
  "bench",
  async (job) => {
    if (job.name === "pickup") picked();
    else done++;
  },
  { connection, concurrency: Number(values.concurrency), removeOnComplete: { count: 0 } },
);
await worker.waitUntilReady();

const pickupMS = [];
for (let i = 0; i < Number(values.pickups); i++) {
  const began = performance.now();
  const wait = new Promise((resolve) => {
    picked = resolve;
  });
  await queue.add("pickup", {}, { removeOnComplete: true });
  await wait;
  pickupMS.push(performance.now() - began);
}
pickupMS.sort((a, b) => a - b);

// used returns the CPU time in microseconds that the redis-server and this process have used so far.
const used = async () => {
  const info = await admin.info("cpu");
  const seconds = (name) => Number(new RegExp(`^${name}:([0-9.]+)`, "m").exec(info)[1]);
  const own = process.cpuUsage();
  return { redis: (seconds("used_cpu_sys") + seconds("used_cpu_user")) * 1e6, load: own.user + own.system };
};

const job = { name: "load", data: { text: "x".repeat(Number(values.payload)) }, opts: { removeOnComplete: true } };
const before = await used();
const began = performance.now();
const end = began + Number(values.seconds) * 1000;
let added = 0;
while (performance.now() < end) {
  await queue.addBulk(Array.from({ length: batch }, () => job));
  added += batch;
}
while (done < added) await new Promise((resolve) => setTimeout(resolve, 5));
const seconds = (performance.now() - began) / 1000;
const after = await used();

await worker.close();
await queue.close();
admin.disconnect();
console.log(
  JSON.stringify({
    rate: added / seconds,
    redis: (after.redis - before.redis) / added,
    load: (after.load - before.load) / added,
    pickup_ms: pickupMS,
  }),
);
