import { defineConfig } from "@playwright/test";

// Debian's Chromium; no browser is downloaded.
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

export default defineConfig({
  projects: [
    { name: "browser", testDir: "tests/browser" },
    // Figures of speed and size, in a lane of their own: a busy machine fails no other test.
    { name: "budgets", testDir: "tests/budgets" },
    // The pictures of the documents.
    { name: "pictures", testDir: "tests/pictures" },
  ],
  // Two cores: the servers of the tests need one of them.
  workers: 2,
  fullyParallel: false,
  timeout: 60_000,
  // Other tests run at the same time and may delay an answer beyond a test's patience. A test that passes only at
  // the second try is listed as flaky.
  retries: 1,
  expect: { timeout: 15_000 },
  reporter: [["list"]],
  outputDir: "../target/page-tests",
  use: {
    viewport: { width: 1280, height: 800 },
    launchOptions: { executablePath: CHROMIUM, args: ["--no-sandbox"] },
    locale: "en-GB",
    timezoneId: "UTC",
    trace: "off",
  },
});
