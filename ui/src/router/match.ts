//! Matches addresses against patterns such as `/workloads/:workload/:tab`.

export type Params = Record<string, string>;

/** The parameters of an address, or `undefined` if it does not match. */
export function matchPath(pattern: string, path: string): Params | undefined {
  const expected = parts(pattern);
  const actual = parts(path);
  if (expected.length !== actual.length) return undefined;
  const params: Params = {};
  for (const [index, part] of expected.entries()) {
    const value = decode(actual[index] ?? "");
    if (value === undefined) return undefined;
    if (part.startsWith(":")) params[part.slice(1)] = value;
    else if (part !== value) return undefined;
  }
  return params;
}

/** The first entry whose pattern matches. */
export function firstMatch<T extends { path: string }>(
  table: readonly T[],
  path: string,
): { entry: T; params: Params } | undefined {
  for (const entry of table) {
    const params = matchPath(entry.path, path);
    if (params !== undefined) return { entry, params };
  }
  return undefined;
}

function parts(path: string): string[] {
  return path.split("/").filter((part) => part !== "");
}

/** A part with a broken percent encoding matches nothing. */
function decode(part: string): string | undefined {
  try {
    return decodeURIComponent(part);
  } catch {
    return undefined;
  }
}

/** Paths that the server answers itself. */
const SERVED = ["/api", "/docs", "/assets", "/install"];

/** True if the shell shows this path; otherwise a link to it leaves the shell. */
export function isOwnPath(path: string): boolean {
  return !SERVED.some((served) => path === served || path.startsWith(`${served}/`) || path.startsWith(`${served}.`));
}
