//! The address bar as state.
//!
//! Links are ordinary `<a href>` elements: [`router.listen`] follows those to the shell's own pages without loading it again.

import { session } from "../api/session.svelte";
import { isOwnPath } from "./match";

class Router {
  path = $state("/");
  query = $state.raw(new URLSearchParams());
  /** Counts navigations by a person, after which the page's heading gets the focus. */
  visits = $state(0);

  /** Follows the address bar and the links of the document. Called once. */
  listen(): void {
    this.#read();
    window.addEventListener("popstate", () => {
      this.#read();
      this.visits += 1;
    });
    document.addEventListener("click", (event) => this.#clicked(event));
  }

  /** Goes to a path of the shell, for example `/workloads/train`. */
  go(path: string, options: { replace?: boolean } = {}): void {
    const address = href(path);
    const now = location.pathname + location.search;
    if (options.replace === true || address === now) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
    this.#read();
    if (options.replace !== true) {
      this.visits += 1;
      window.scrollTo(0, 0);
    }
  }

  /** Changes parameters of the query, for example a filter, without a new entry in the history. */
  setQuery(changes: Record<string, string | undefined>): void {
    const query = new URLSearchParams(location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === undefined || value === "") query.delete(name);
      else query.set(name, value);
    }
    const text = query.toString();
    history.replaceState(null, "", location.pathname + (text === "" ? "" : `?${text}`));
    this.#read();
  }

  #read(): void {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
    session.choose(this.query.get("project") ?? undefined);
  }

  #clicked(event: MouseEvent): void {
    const link = event.target instanceof Element ? event.target.closest("a") : null;
    if (link === null || !isPlainClick(event) || !isPlainLink(link)) return;
    const address = new URL(link.href, location.href);
    if (address.origin !== location.origin || !isOwnPath(address.pathname) || address.hash !== "") return;
    event.preventDefault();
    this.go(address.pathname + address.search);
  }
}

function isPlainClick(event: MouseEvent): boolean {
  return (
    !event.defaultPrevented && event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey)
  );
}

function isPlainLink(link: HTMLAnchorElement): boolean {
  return link.target === "" && !link.hasAttribute("download") && link.hasAttribute("href");
}

/** The address of a path in the chosen project. Use it for every `href`, so that a link also works in a new tab. */
export function href(path: string): string {
  const { project, projects } = session;
  if (projects.length < 2 || project === undefined || session.isProjectUnknown || path.includes("project="))
    return path;
  return `${path}${path.includes("?") ? "&" : "?"}project=${encodeURIComponent(project)}`;
}

/** The address of a path in a project, by its name or id, which may be another one than the chosen: pages list things of all projects, too. */
export function hrefIn(project: string | null | undefined, path: string): string {
  const name = session.nameOfProject(project ?? undefined);
  if (name === undefined || name === session.project || path.includes("project=")) return href(path);
  return `${path}${path.includes("?") ? "&" : "?"}project=${encodeURIComponent(name)}`;
}

/** The address of a path with user-made names in it: each is one encoded part. */
export function pathOf(...names: string[]): string {
  return `/${names.map(encodeURIComponent).join("/")}`;
}

export const router = new Router();
