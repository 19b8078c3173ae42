//! Lists every line of the command line program that the shell shows in `commands.golden`, which a test of that program parses. The list is read
//! from the sources: from the calls of `commandLine`, and from texts that are such a line. A value that a page fills in is shown in braces.
//!
//! After a change of a line: `npx vitest run src/text/commands.test.ts -u`

import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { parse } from "svelte/compiler";
import { expect, it } from "vitest";

import { computedLines } from "./commands.examples";

const SOURCES = fileURLToPath(new URL("..", import.meta.url));
const GOLDEN = fileURLToPath(new URL("commands.golden", import.meta.url));

/** The values of verbs that are variables, by file. */
const VERBS: Record<string, readonly string[]> = {
  "pages/nodes/EnrollDialog.svelte": ["enroll", "reset"],
  "pages/nodes/NodeConfirm.svelte": ["reimage", "retire", "delete"],
};

/** A node of a syntax tree. */
interface Syntax {
  type: string;
  start: number;
  end: number;
  // Which fields there are depends on the type.
  [field: string]: unknown;
}

type Words = readonly string[];

function* within(value: unknown): Generator<Syntax> {
  if (Array.isArray(value)) {
    for (const entry of value) yield* within(entry);
  } else if (isSyntax(value)) {
    yield value;
    yield* within(Object.values(value));
  }
}

function isSyntax(value: unknown): value is Syntax {
  return typeof value === "object" && value !== null && "type" in value && typeof value.type === "string";
}

/** A source of the shell. */
class Source {
  readonly #text: string;

  constructor(
    readonly name: string,
    text: string,
  ) {
    this.#text = name.endsWith(".svelte") ? text : `<script lang="ts">\n${text}\n</script>`;
  }

  /** Every line in the file. Throws if there is one that cannot be read. */
  lines(): string[] {
    return [...within(parse(this.#text, { modern: true }))].flatMap((syntax) => [
      ...this.#called(syntax),
      ...this.#written(syntax),
    ]);
  }

  #called(syntax: Syntax): string[] {
    const { callee } = syntax;
    if (syntax.type !== "CallExpression" || !isSyntax(callee) || callee["name"] !== "commandLine") return [];
    return this.#combined(syntax["arguments"])
      .flatMap((words) => this.#withVerbs(words))
      .map((words) => `gpuaas ${words.join(" ")}`);
  }

  #withVerbs(words: Words): Words[] {
    const [noun = "", verb = ""] = words;
    if (noun.startsWith("{")) return this.#refuse(words.join(" "));
    if (!verb.startsWith("{")) return [words];
    const verbs = VERBS[this.name] ?? this.#refuse(`${words.join(" ")}: VERBS has no values for this verb`);
    return verbs.map((known) => words.with(1, known));
  }

  /** A text that is a line. The beginning of one, which is compared with others, ends with a blank. */
  #written({ type, value, data }: Syntax): string[] {
    const quasi = type === "TemplateElement" ? (value as { cooked: string }).cooked : undefined;
    const text = type === "Literal" ? value : type === "Text" ? data : quasi;
    if (typeof text !== "string" || !/\bgpuaas [a-z]/.test(text)) return [];
    if (quasi !== undefined || !text.trim().startsWith("gpuaas ")) return this.#refuse(text);
    return text.endsWith(" ") ? [] : [text.trim()];
  }

  /** The readings of a list of arguments: the shortest one, and for each other reading of an argument one with it. */
  #combined(list: unknown): Words[] {
    const all = [...(list as Syntax[])].map((argument) =>
      this.#readings(argument).sort((one, other) => one.length - other.length),
    );
    const shortest = all.map(([first = []]) => first);
    const others = all.flatMap((readings, at) => readings.slice(1).map((reading) => shortest.with(at, reading)));
    return [shortest, ...others].map((words) => words.flat());
  }

  /** What an argument can be. */
  #readings(argument: Syntax): Words[] {
    const { type } = argument;
    if (type === "Literal") return [[String(argument["value"])]];
    if (type === "SpreadElement") return this.#spread(argument["argument"] as Syntax);
    if (type === "ConditionalExpression") return this.#branches(argument).flatMap((branch) => this.#readings(branch));
    // The word that stands for a value as long as there is none.
    const otherwise = argument["right"];
    if (type === "LogicalExpression" && isSyntax(otherwise)) return this.#readings(otherwise);
    return [[`{${this.#code(argument).replace(/\s+/g, "")}}`]];
  }

  #spread(list: Syntax): Words[] {
    if (list.type === "ArrayExpression") return this.#combined(list["elements"]);
    if (list.type === "ConditionalExpression") return this.#branches(list).flatMap((branch) => this.#spread(branch));
    // `entries.flatMap((entry) => [...])`: none of them, or one.
    const made = list.type === "CallExpression" ? (list["arguments"] as Syntax[]).at(-1)?.["body"] : undefined;
    if (isSyntax(made) && made.type === "ArrayExpression") return [[], ...this.#combined(made["elements"])];
    return this.#refuse(this.#code(list));
  }

  #branches(conditional: Syntax): Syntax[] {
    return [conditional["consequent"], conditional["alternate"]] as Syntax[];
  }

  #code({ start, end }: Syntax): string {
    return this.#text.slice(start, end);
  }

  #refuse(what: string): never {
    throw new Error(`${this.name}: this command cannot be read: ${what}`);
  }
}

function all(): string[] {
  const computed = computedLines();
  const names = readdirSync(SOURCES, { recursive: true, encoding: "utf8" }).sort();
  return names.flatMap((name) => {
    if (!/\.(svelte|ts)$/.test(name) || /(\.test|\.examples|schema)\.ts$/.test(name)) return [];
    const text = readFileSync(`${SOURCES}/${name}`, "utf8");
    if (!/commandLine\(|gpuaas [a-z]/.test(text)) return [];
    const lines = computed[name] ?? new Source(name, text).lines();
    return [...new Set(lines)].map((line) => `${name}: ${line}`);
  });
}

it("the program's own test has every line that the shell shows", async () => {
  await expect(`${all().join("\n")}\n`).toMatchFileSnapshot(GOLDEN);
});

it("every form of a call is read, and what cannot be read is refused", () => {
  const lines = (call: string): string[] => new Source("page.svelte", `<p>{${call}}</p>`).lines();
  expect(lines(`commandLine("app", "show", app?.slug ?? "SLUG")`)).toEqual(["gpuaas app show SLUG"]);
  expect(lines(`commandLine("node", on ? "inspect" : "ping", node.name)`)).toEqual([
    "gpuaas node inspect {node.name}",
    "gpuaas node ping {node.name}",
  ]);
  expect(lines(`commandLine("a", "b", ...(c ? ["--c", c] : []), ...all.flatMap((one) => ["--d", one]))`)).toEqual([
    "gpuaas a b",
    "gpuaas a b --c {c}",
    "gpuaas a b --d {one}",
  ]);
  expect(new Source("page.svelte", `<Page command="gpuaas app list" />`).lines()).toEqual(["gpuaas app list"]);
  for (const call of [`commandLine("app", ...rest)`, `commandLine("app", verb)`, "`run gpuaas app ${verb}`"])
    expect(() => lines(call), call).toThrow("page.svelte");
});
