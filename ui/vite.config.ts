import { svelte } from "@sveltejs/vite-plugin-svelte";
import { compileModule } from "svelte/compiler";
import type { Plugin } from "vite";
import { defineConfig } from "vitest/config";

// The control plane that `npm run dev` forwards requests to, for example one that `gpuaas dev` runs.
const server = process.env["GPUAAS_URL"] ?? "https://127.0.0.1:7443";
const forwarded = Object.fromEntries(
  ["/api", "/docs"].map((path) => [path, { target: server, secure: false, changeOrigin: true }]),
);

/** Tests with runes of their own. In all others, modules are compiled as for a server: `$state` is a plain field, and no effect runs. */
const REACTIVE = "src/**/*.svelte.test.ts";

/** Compiles modules with runes as for a browser. Svelte's own plugin does so only for pages. */
function clientModules(): Plugin {
  return {
    name: "client-modules",
    transform: (code, id) =>
      /\.svelte(?:\.test)?\.ts$/.test(id)
        ? compileModule(code, { filename: id, generate: "client", dev: true }).js
        : undefined,
  };
}

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
  test: {
    environment: "node",
    testTimeout: 30_000,
    projects: [
      { extends: true, test: { name: "logic", include: ["src/**/*.test.ts"], exclude: [REACTIVE] } },
      {
        plugins: [clientModules()],
        resolve: { conditions: ["browser"] },
        ssr: { resolve: { conditions: ["browser"] } },
        test: { name: "reactivity", include: [REACTIVE], server: { deps: { inline: ["svelte"] } } },
      },
    ],
  },
});
