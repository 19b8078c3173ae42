//! Keys of the whole shell: single keys and sequences such as `g w`.

export const SHORTCUTS: readonly { keys: string; does: string; path?: string }[] = [
  { keys: "/", does: "Search" },
  { keys: "g w", does: "Go to workloads", path: "/workloads" },
  { keys: "g n", does: "Go to nodes", path: "/nodes" },
  { keys: "g o", does: "Go to operations", path: "/operations" },
  { keys: "g a", does: "Go to allocations", path: "/allocations" },
  { keys: "f", does: "Filter the list" },
  { keys: "?", does: "Show these keys" },
];

/** A sequence is given up after this. */
const SEQUENCE_MS = 1_200;

export class KeySequence {
  #first: { key: string; at: number } | undefined;

  /** The shortcut that a key completes. */
  push(key: string, at: number): string | undefined {
    const first = this.#first !== undefined && at - this.#first.at <= SEQUENCE_MS ? this.#first.key : undefined;
    this.#first = undefined;
    const whole = first === undefined ? key : `${first} ${key}`;
    if (SHORTCUTS.some((shortcut) => shortcut.keys === whole)) return whole;
    if (SHORTCUTS.some((shortcut) => shortcut.keys.startsWith(`${key} `))) this.#first = { key, at };
    return undefined;
  }
}

/** True if the key belongs to what has the focus: a text field, or an open dialog or menu. */
export function isTaken(event: KeyboardEvent): boolean {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return true;
  const target = event.target instanceof Element ? event.target : null;
  if (target?.closest("input, select, textarea, [contenteditable], [role=menu]")) return true;
  return document.querySelector("[role=dialog]") !== null;
}
