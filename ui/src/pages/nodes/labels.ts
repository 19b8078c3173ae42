//! Labels of a node as a person types them: one `key=value` a line. A value may contain any printable character, commas too.

/** The labels, or the lines that are none. */
export function parseLabels(text: string): { labels: Record<string, string>; wrong: string[] } {
  const labels: Record<string, string> = {};
  const wrong: string[] = [];
  for (const line of text.split("\n").map((entry) => entry.trim())) {
    if (line === "") continue;
    const equals = line.indexOf("=");
    if (equals < 1) wrong.push(line);
    else labels[line.slice(0, equals).trim()] = line.slice(equals + 1).trim();
  }
  return { labels, wrong };
}
