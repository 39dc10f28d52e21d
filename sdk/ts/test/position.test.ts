import { describe, expect, it } from "vitest";
import { Heads, maxHeads } from "../src/position.js";

describe("heads", () => {
  it("drop the channel that was not observed for the longest time", () => {
    const heads = new Heads();
    for (let i = 0; i < maxHeads; i++) {
      heads.observe(`${i}`, "e", 7);
    }
    heads.observe("0", "e", 3); // lower, but observed
    heads.reset({ channelId: "1", seq: 2, epoch: "e" });
    heads.observe("another", "e", 1);
    heads.reset({ channelId: "one more", seq: 1, epoch: "e" });
    const seqs = ["0", "1", "2", "3", "4", "another", "one more"].map((id) => heads.get(id).seq);
    expect(seqs).toEqual([7, 2, 0, 0, 7, 1, 1]);
  });
});
