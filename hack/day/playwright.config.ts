import { defineConfig } from "@playwright/test";
import chat from "../../clients/pages/e2e/playwright.config.ts";

// A day takes its length through the speed, and has no other limit.
export default defineConfig({ ...chat, testDir: ".", outputDir: "../../test-results/day", timeout: 0 });
