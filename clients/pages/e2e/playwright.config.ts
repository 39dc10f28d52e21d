import { existsSync } from "node:fs";
import { delimiter, join } from "node:path";
import { defineConfig } from "@playwright/test";

/**
 * onPath returns the path of a program. If there is none it returns the name, so that Playwright
 * reports what is missing.
 */
function onPath(name: string): string {
  const folders = (process.env.PATH ?? "").split(delimiter);
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path)) ?? name;
}

// A missing Chromium fails the tests. CHROMIUM names another one. Chromium's sandbox does not work
// as root.
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
    launchOptions: { executablePath: process.env.CHROMIUM || onPath("chromium"), args: ["--no-sandbox"] },
    viewport: { width: 1280, height: 800 },
    screenshot: "only-on-failure",
    actionTimeout: 20_000,
  },
});
