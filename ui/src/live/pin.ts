//! Keeps the row that a person uses where it is in the window while others arrive above it.

/** Rows of tables, as `components/Table.svelte` makes them. */
const ROW = "tbody tr[data-row]";

/** Remembers where the row is. The returned function, called after the change, scrolls the page so that the row is there again. */
export function pin(): () => void {
  const row = typeof document === "undefined" ? undefined : rowInUse();
  if (row === undefined) return () => undefined;
  const before = row.getBoundingClientRect().top;
  return () => {
    const moved = row.getBoundingClientRect().top - before;
    // Further than a window, its element shows another row by now.
    if (moved === 0 || !row.isConnected || Math.abs(moved) > window.innerHeight) return;
    window.scrollBy({ top: moved, behavior: "instant" });
  };
}

/** The row with the focus, else the one under the pointer, else the first one in the window of a table that begins above it. */
function rowInUse(): HTMLElement | undefined {
  const focused = document.activeElement?.closest<HTMLElement>(ROW);
  if (focused && isSeen(focused)) return focused;
  const pointed = document.querySelector<HTMLElement>(`${ROW}:hover`);
  if (pointed !== null) return pointed;
  const body = [...document.querySelectorAll("tbody")].find((candidate) => {
    const { top, bottom } = candidate.getBoundingClientRect();
    return top < 0 && bottom > 0;
  });
  return body === undefined ? undefined : firstSeen(body);
}

/** The rows of a long table are in no order in the document. */
function firstSeen(body: HTMLElement): HTMLElement | undefined {
  const seen = [...body.querySelectorAll<HTMLElement>("tr[data-row]")].filter(isSeen);
  const topOf = (row: HTMLElement): number => row.getBoundingClientRect().top;
  return seen.sort((a, b) => topOf(a) - topOf(b))[0];
}

function isSeen(row: HTMLElement): boolean {
  const { top, bottom } = row.getBoundingClientRect();
  return bottom > 0 && top < window.innerHeight;
}
