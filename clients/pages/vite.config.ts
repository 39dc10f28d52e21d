import { fileURLToPath } from "node:url";
import { build, type Plugin } from "vite";
import { defineConfig } from "vitest/config";

const target = ["es2022", "chrome123", "firefox121", "safari17.5"];

// sdkModule bundles the TypeScript SDK as one module without imports, for pages without a build
// step.
function sdkModule(): Plugin {
  let outDir = "";
  return {
    name: "parley-sdk-module",
    apply: "build",
    configResolved(config) {
      outDir = fileURLToPath(new URL(config.build.outDir, `file://${config.root}/`));
    },
    async closeBundle() {
      const entry = fileURLToPath(import.meta.resolve("@parleyhq/sdk"));
      await build({
        configFile: false,
        publicDir: false,
        logLevel: "warn",
        build: {
          outDir,
          target,
          emptyOutDir: false,
          lib: { entry, formats: ["es"], fileName: () => "parley.js" },
          rolldownOptions: { output: { minify: true } },
        },
      });
    },
  };
}

// The pages. Their common modules are shared.
const pages = ["index.html", "assistant.html", "queues.html"];

const server = process.env.PARLEY_ADDR ?? "http://127.0.0.1:8080";

export default defineConfig({
  plugins: [sdkModule()],
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target,
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    emptyOutDir: true,
    rolldownOptions: { input: pages },
  },
  // During development, Vite's server forwards calls to a running parleyd.
  server: { proxy: { "/parley.v1.": server, "/parley.js": server } },
  test: { include: ["test/**/*.test.ts"], environment: "node", testTimeout: 30_000 },
});
