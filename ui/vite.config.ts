import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";

// The control plane that `npm run dev` forwards requests to, for example one that `gpuaas dev` runs.
const server = process.env["GPUAAS_URL"] ?? "https://127.0.0.1:7443";
const forwarded = Object.fromEntries(
  ["/api", "/docs"].map((path) => [path, { target: server, secure: false, changeOrigin: true }]),
);

export default defineConfig({
  plugins: [svelte()],
  server: { proxy: forwarded },
  build: {
    // `light-dark()` is used as written.
    cssTarget: "chrome123",
    target: "es2022",
    // Images and fonts are files of their own: the content security policy admits no `data:` address.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  test: { include: ["src/**/*.test.ts"], environment: "node", testTimeout: 30_000 },
});
