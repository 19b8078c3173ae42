//! Keys of the whole shell: single keys and sequences such as `g w`.

import type { Permission } from "../api/types";

export interface Shortcut {
  keys: string;
  does: string;
  path?: string;
}

const SHORTCUTS: readonly Shortcut[] = [
  { keys: "/", does: "Search" },
  { keys: "g w", does: "Go to workloads", path: "/workloads" },
  { keys: "g n", does: "Go to nodes", path: "/nodes" },
  { keys: "g o", does: "Go to operations", path: "/operations" },
  { keys: "g a", does: "Go to allocations", path: "/allocations" },
  { keys: "f", does: "Filter the list" },
  { keys: "?", does: "Show these keys" },
];

/** The shortcuts of a person: those to pages that need a permission only with it. */
export function shortcutsFor(
  may: (permission: Permission) => boolean,
  pages: readonly { path: string; needs?: Permission }[],
): Shortcut[] {
  return SHORTCUTS.filter(({ path }) => {
    const needs = pages.find((page) => page.path === path)?.needs;
    return needs === undefined || may(needs);
  });
}

/** A sequence is given up after this. */
const SEQUENCE_MS = 1_200;

export class KeySequence {
  #first: { key: string; at: number } | undefined;

  /** The one of these shortcuts that a key completes. */
  push(key: string, at: number, shortcuts: readonly Shortcut[] = SHORTCUTS): Shortcut | undefined {
    const first = this.#first !== undefined && at - this.#first.at <= SEQUENCE_MS ? this.#first.key : undefined;
    this.#first = undefined;
    const whole = first === undefined ? key : `${first} ${key}`;
    const completed = shortcuts.find((shortcut) => shortcut.keys === whole);
    if (completed !== undefined) return completed;
    if (shortcuts.some((shortcut) => shortcut.keys.startsWith(`${key} `))) this.#first = { key, at };
    return undefined;
  }
}

/** Controls in which letters are typed, or choose something. */
const TAKES_LETTERS = [
  "input:not([type=checkbox], [type=radio], [type=button], [type=submit], [type=reset])",
  "select",
  "textarea",
  "[contenteditable]",
  "[role=menu]",
].join(", ");

/** True if the key belongs to what has the focus: a text field, or an open dialog or menu. */
export function isTaken(event: KeyboardEvent): boolean {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return true;
  const target = event.target instanceof Element ? event.target : null;
  if (target?.closest(TAKES_LETTERS)) return true;
  return document.querySelector("[role=dialog], dialog[open]") !== null;
}
