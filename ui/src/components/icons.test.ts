import { readFileSync } from "node:fs";

import { expect, it } from "vitest";

import { ICONS } from "./icons";

type Attributes = Record<string, string>;

/** The elements of an icon of Lucide's package. */
function elementsOf(name: string): [string, Attributes][] {
  const file = new URL(`../../node_modules/@lucide/svelte/dist/icons/${name}.svelte`, import.meta.url);
  const data = /const iconData = (\{.*\});/.exec(readFileSync(file, "utf8"))?.[1] ?? "{}";
  return (JSON.parse(data) as { node: [string, Attributes][] }).node;
}

/** An element as part of a path: it begins at a place of its own, not where the part before it ends. */
function partOf([tag, of]: [string, Attributes]): string {
  if (tag === "line") return `M${of["x1"]} ${of["y1"]}L${of["x2"]} ${of["y2"]}`;
  if (tag === "path") return (of["d"] ?? "").replace(/^m(-?[\d.]+) ?(-?[\d.]+) ?/, "M$1 $2l");
  const [x, y, r] = [Number(of["cx"]), Number(of["cy"]), Number(of["r"])];
  expect(tag).toBe("circle");
  return `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`;
}

it.each(Object.entries(ICONS))("%s is the icon of the package", (name, path) => {
  expect(path).toBe(elementsOf(name).map(partOf).join(""));
});
