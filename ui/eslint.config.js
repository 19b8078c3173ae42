import js from "@eslint/js";
import svelte from "eslint-plugin-svelte";
import globals from "globals";
import ts from "typescript-eslint";

import svelteConfig from "./svelte.config.js";

export default ts.config(
  { ignores: ["dist/", "node_modules/", "src/api/schema.ts"] },
  js.configs.recommended,
  ...ts.configs.strict,
  ...svelte.configs.recommended,
  { languageOptions: { globals: { ...globals.browser, ...globals.node } } },
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser: ts.parser, extraFileExtensions: [".svelte"], svelteConfig } },
  },
  {
    rules: {
      eqeqeq: "error",
      "max-lines": ["error", 600],
      "max-lines-per-function": ["error", { max: 60, skipBlankLines: true, skipComments: true }],
      "no-console": "error",
      // The compiler resolves names, also those of types.
      "no-undef": "off",
      "svelte/no-at-html-tags": "error",
      "no-restricted-syntax": [
        "error",
        {
          selector: "SvelteAttribute[key.name='style']",
          message: "The content security policy blocks style attributes. Use a class, or a `style:` directive.",
        },
        {
          selector:
            ":matches(SvelteText, SvelteLiteral)[value=/\\bcancel\\b/i], Literal[value=/^Cancel\\b(?! operations?$)/]",
          message: "Dialogs are closed (`Close`), and only operations are cancelled (`ACTION_LABELS.cancel`).",
        },
      ],
      "@typescript-eslint/no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      // Addresses and headers are built in functions and never kept in state.
      "svelte/prefer-svelte-reactivity": "off",
      // Addresses are made by the shell's own router, not by SvelteKit's.
      "svelte/no-navigation-without-resolve": "off",
    },
  },
  {
    files: ["**/*.test.ts", "tests/**/*.spec.ts"],
    rules: { "max-lines-per-function": "off" },
  },
  {
    files: ["fixture/**"],
    rules: { "no-console": "off", "max-lines-per-function": "off" },
  },
);
