//! Orders names as people do: `gpu-2` before `gpu-10`.

const keys = new Map<string, string>();
/** More names than any list has; a larger cache would only hold names of the past. */
const KEYS_MAX = 50_000;
const DIGITS = 15;

/** A text whose plain order is the natural order of the names. Made once a name: lists are sorted again with every change. */
export function orderKey(name: string): string {
  const known = keys.get(name);
  if (known !== undefined) return known;
  if (keys.size >= KEYS_MAX) keys.clear();
  const key = name.toLowerCase().replace(/\d+/g, (digits) => digits.padStart(DIGITS, "0"));
  keys.set(name, key);
  return key;
}

export function compareNames(a: string, b: string): number {
  const [first, second] = [orderKey(a), orderKey(b)];
  if (first === second) return 0;
  return first < second ? -1 : 1;
}
