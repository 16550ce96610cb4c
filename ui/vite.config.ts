import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// The parts that most pages share are one file: the build makes a file for each of them otherwise, and
// each file is a request. Parts of lists alone are another one, for the sake of the first view. Parts of
// the frame that open by a click, and those for tenants, are loaded on their own.
const LISTS = /ui\/src\/parts\/(Confirm|Empty|Facts|FilterBox|SelectorBox|Segments|Strip|filter|opened)\./;
const SHARED =
  /ui\/src\/(api|format|frame|look|parts|state)\/(?!Finder|find\.|Tenant|NotificationList|Confirm|Empty|Facts|FilterBox|SelectorBox|Segments|Strip|filter|opened)|ui\/src\/pages\/(alerting|selfMetrics)\.ts|ui\/src\/query\/(functions|history|names|rank)\.ts|node_modules\/(svelte|esm-env|clsx)\/|vite\/preload-helper/;

// Server behind `npm run dev`.
const FIRN = process.env.FIRN_URL ?? "http://127.0.0.1:9090";

export default defineConfig({
  // Relative, so that the page works below any route prefix.
  base: "./",
  plugins: [svelte()],
  // Tests run the code of the browser, too.
  ...(process.env.VITEST ? { resolve: { conditions: ["browser"] } } : {}),
  build: {
    target: "es2022",
    // The content policy refuses `data:`.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    license: { fileName: "LICENSES.txt" },
    reportCompressedSize: false,
    rolldownOptions: { output: { codeSplitting: { includeDependenciesRecursively: false, groups: [{ name: "shared", test: SHARED, priority: 1 }, { name: "lists", test: LISTS }] } } },
  },
  server: {
    proxy: Object.fromEntries(["/api", "/-/", "/metrics", "/consoles", "/user/"].map((path) => [path, FIRN])),
  },
  test: {
    include: ["tests/unit/**/*.test.ts"],
    environment: "node",
  },
});
