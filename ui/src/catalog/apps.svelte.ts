//! The names of the catalog's apps, which come from their manifests. Versions change with imports: pages that need them read `pages/apps/source`.

import { api, take } from "../api/client";
import type { App } from "../api/types";

class Apps {
  #read: Promise<App[]> | undefined;
  list = $state.raw<readonly App[]>([]);

  /** Reads the catalog once: names change only with the control plane. */
  load(): Promise<App[]> {
    this.#read ??= take(api.GET("/api/v1/apps"))
      .then((page) => {
        this.list = page.items;
        return page.items;
      })
      .catch((thrown: unknown) => {
        this.#read = undefined;
        throw thrown;
      });
    return this.#read;
  }

  /** The label of an app, or its slug until the catalog is read. */
  nameOf(slug: string): string {
    return this.find(slug)?.name ?? slug;
  }

  /** An app with the schemas of its manifest; `undefined` until the catalog is read. */
  find(slug: string): App | undefined {
    return this.list.find((app) => app.slug === slug);
  }
}

export const apps = new Apps();
