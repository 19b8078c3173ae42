//! Makes text from nodes and tenants safe to show: no control characters, no escape sequences, no invisible change of direction.

// A node may write whatever it likes into its journal; a terminal would execute these, a page would show them as rubbish.
// eslint-disable-next-line no-control-regex
const ESCAPE_SEQUENCES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
// eslint-disable-next-line no-control-regex
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g;
/** Marks that reorder the text around them. Right-to-left letters themselves stay. */
const DIRECTION_MARKS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

/** The text without escape sequences and control characters; tabs and line feeds stay. */
export function plain(text: string): string {
  return text.replace(ESCAPE_SEQUENCES, "").replace(CONTROLS, "").replace(DIRECTION_MARKS, "");
}

/** The text in one line. */
export function oneLine(text: string): string {
  return plain(text).replace(/\s+/g, " ").trim();
}

/** A long id in the short form `0198c2…7f3a`. */
export function shortId(id: string): string {
  const bare = id.replace(/^(sha256:|plan-)/, "");
  const prefix = id.slice(0, id.length - bare.length);
  return bare.length <= 13 ? id : `${prefix}${bare.slice(0, 6)}…${bare.slice(-4)}`;
}

/** `server_bootstrapping` as `server bootstrapping`. */
export function words(key: string): string {
  return key.replaceAll("_", " ");
}

/** The text with its first letter in upper case. */
export function sentenceCase(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** `10,000`. */
export function grouped(count: number): string {
  return count.toLocaleString("en");
}

/** `1 member`, `2 members`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${grouped(count)} ${count === 1 ? one : many}`;
}
