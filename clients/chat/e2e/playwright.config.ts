import { defineConfig } from "@playwright/test";

// A missing Chromium fails the tests. CHROMIUM names another one; root can't have Chromium's sandbox.
export default defineConfig({
  testDir: ".",
  outputDir: "../../../test-results/e2e",
  fullyParallel: true,
  workers: 2,
  forbidOnly: true,
  timeout: 90_000,
  expect: { timeout: 20_000 },
  reporter: [["list"]],
  use: {
    browserName: "chromium",
    headless: true,
    launchOptions: { executablePath: process.env["CHROMIUM"] ?? "/usr/bin/chromium", args: ["--no-sandbox"] },
    viewport: { width: 1280, height: 800 },
    screenshot: "only-on-failure",
    actionTimeout: 20_000,
  },
});
