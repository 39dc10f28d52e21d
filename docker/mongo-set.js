// Creates one replica set of the three servers unless it exists, and waits until it has a primary.
const members = ["mongo-0", "mongo-1", "mongo-2"].map((host, i) => ({ _id: i, host: host + ":27017" }));
try {
  rs.initiate({ _id: "rs0", members, settings: { electionTimeoutMillis: 2000, heartbeatIntervalMillis: 500 } });
} catch (e) {
  if (e.codeName !== "AlreadyInitialized") throw e;
}
for (let i = 0; i < 60; i++) {
  if (db.hello().primary) quit(0);
  sleep(1000);
}
print("no primary after a minute");
quit(1);
