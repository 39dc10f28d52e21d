import { defineConfig } from "@playwright/test";
import chat from "../../clients/pages/e2e/playwright.config.ts";

// The duration depends on the speed, so there is no time limit.
export default defineConfig({ ...chat, testDir: ".", outputDir: "../../test-results/day", timeout: 0 });
