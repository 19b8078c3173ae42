//! What the open page tells the shell about itself: its place in the breadcrumb and the document's title.

export interface Crumb {
  label: string;
  href?: string;
}

class Heading {
  crumbs = $state.raw<readonly Crumb[]>([]);
}

export const heading = new Heading();
