//! What the search finds among the things that it has read.

export interface Hit {
  kind: string;
  name: string;
  path: string;
}

const SHOWN_MAX = 12;
const ID = /^[0-9a-f]{8}-[0-9a-f-]{4,27}$/;

/** Hits for a text: names that begin with it, then names that contain it. An id is offered as an operation. */
export function find(things: readonly Hit[], typed: string): Hit[] {
  const text = typed.trim().toLowerCase();
  if (text === "") return [];
  const ranked = things
    .map((hit) => ({ hit, at: hit.name.toLowerCase().indexOf(text) }))
    .filter(({ at }) => at >= 0)
    .sort((a, b) => a.at - b.at || a.hit.name.length - b.hit.name.length || a.hit.name.localeCompare(b.hit.name));
  const hits = ranked.slice(0, SHOWN_MAX).map(({ hit }) => hit);
  if (ID.test(text)) hits.push({ kind: "operation", name: text, path: `/operations/${text}` });
  return hits;
}
