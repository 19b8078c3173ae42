//! Every page of the shell, from the shell's own table, with an address that exists on a platform.

import { existsSync, readFileSync } from "node:fs";

const pagesFolder = new URL("../src/pages/", import.meta.url);
const tabs = [...read("workload/tabs.ts").matchAll(/\{ id: "(\w+)", label: "\w+", file: "(\w+)"/g)];

export interface PageAddress {
  /** For the names of tests and of screenshots. */
  name: string;
  path: string;
}

/** Values for the parameters of addresses. */
export interface Objects {
  workload: string;
  node: string;
  app: string;
  allocation: string;
  operation: string;
  task: string;
}

function read(file: string): string {
  return readFileSync(new URL(file, pagesFolder), "utf8");
}

/** Addresses of all pages, and of all tabs of a workload. */
export function addresses(objects: Objects): PageAddress[] {
  const lines = [...read("table.ts").matchAll(/path: "([^"]+)",\s+file: "([^"]+)"/g)];
  if (lines.length < 15) throw new Error(`the table of the pages is written in another way: ${lines.length} lines`);
  return lines
    .map(([, path = "", file = ""]) => ({ path, file }))
    .filter(({ file }) => existsSync(new URL(`${file}.svelte`, pagesFolder)))
    .flatMap(({ path, file }) => {
      if (!path.includes(":tab")) return [path];
      return tabsOf(file).map((tab) => path.replace(":tab", tab));
    })
    .map((path) => path.replace(/:(\w+)/g, (_, name: string) => value(objects, name)))
    .map((path) => ({ name: path.slice(1).replaceAll("/", "-"), path }));
}

/** The tabs of a page. The first has an address without a tab. */
function tabsOf(file: string): string[] {
  if (file === "workload/WorkloadPage") {
    const existing = tabs.filter(([, , component]) => existsSync(new URL(`workload/${component}.svelte`, pagesFolder)));
    return existing.map(([, id = ""]) => id).slice(1);
  }
  const found = [...read(`${file}.svelte`).matchAll(/\bid: "(\w+)", label: "/g)];
  if (found.length === 0) throw new Error(`the tabs of ${file} are written in another way`);
  return found.map(([, id = ""]) => id).slice(1);
}

function value(objects: Objects, name: string): string {
  const found: string | undefined = objects[name as keyof Objects];
  if (found === undefined) throw new Error(`the tests have no value for :${name}`);
  return encodeURIComponent(found);
}
