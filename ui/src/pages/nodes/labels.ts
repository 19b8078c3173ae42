//! Labels of a node as a person types them: one `key=value` a line, or several with commas.

/** The labels, or the parts that are none. */
export function parseLabels(text: string): { labels: Record<string, string>; wrong: string[] } {
  const labels: Record<string, string> = {};
  const wrong: string[] = [];
  for (const part of text.split(/[\n,]/).map((entry) => entry.trim())) {
    if (part === "") continue;
    const equals = part.indexOf("=");
    if (equals < 1) wrong.push(part);
    else labels[part.slice(0, equals).trim()] = part.slice(equals + 1).trim();
  }
  return { labels, wrong };
}
