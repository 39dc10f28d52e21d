import { defineConfig } from "@playwright/test";
import chat from "../../clients/pages/e2e/playwright.config.ts";

// The length of a day depends on the speed, so it has no time limit.
export default defineConfig({ ...chat, testDir: ".", outputDir: "../../test-results/day", timeout: 0 });
