import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    sequence: { concurrent: true },
    testTimeout: 30_000,
  },
});
