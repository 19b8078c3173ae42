import { vitePreprocess } from "@sveltejs/vite-plugin-svelte";

export default {
  preprocess: vitePreprocess(),
  compilerOptions: { runes: true },
  // Libraries that still have components in the earlier syntax are compiled as they are.
  vitePlugin: {
    dynamicCompileOptions({ filename }) {
      return filename.includes("node_modules") ? { runes: undefined } : undefined;
    },
  },
};
