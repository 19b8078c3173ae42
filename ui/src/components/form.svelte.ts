//! A form's fields and the problem of its last request.
//!
//! Guarantees: every reason of a problem is shown at a field that is on the page, or else in the form's `ProblemBox`: there is no list of fields
//! that could name one without a control.

import { getContext, setContext, tick, untrack } from "svelte";
import { SvelteSet } from "svelte/reactivity";

import type { Problem, ProblemReason } from "../api/types";
import { isShownBy, notShownBy } from "../schema/refusals";

const KEY = Symbol("form");

export class Form {
  // A set reads nothing when an entry goes. A teardown that reads state gets its earlier value, without what others have added since.
  readonly #fields = new SvelteSet<{ readonly field: string }>();

  constructor(private readonly read: () => Problem | undefined) {}

  get problem(): Problem | undefined {
    return this.read();
  }

  /** Counts a field, which shows what the problem says about it, until the returned function is called. */
  add(field: string): () => void {
    const entry = { field };
    this.#fields.add(entry);
    return () => this.#fields.delete(entry);
  }

  /** The reasons that no field shows. */
  get elsewhere(): ProblemReason[] {
    return this.problem === undefined ? [] : notShownBy(this.problem, this.#names());
  }

  /** True if fields show everything that the problem says. */
  get isShownAtFields(): boolean {
    return this.problem !== undefined && isShownBy(this.problem, this.#names());
  }

  #names(): string[] {
    return [...this.#fields].map(({ field }) => field);
  }
}

/** Makes the calling component a form, for the fields and the `ProblemBox` in it. `problem` reads the problem of its last request. */
export function provideForm(problem: () => Problem | undefined): Form {
  return setContext(KEY, new Form(problem));
}

/** The form around the calling component. */
export function formAround(): Form | undefined {
  return getContext<Form | undefined>(KEY);
}

/**
 * The form around a component that shows the errors of fields, which count as shown while it lives. Throws outside of a form, where nothing
 * would show the other errors.
 */
export function formOfFields(fields: () => readonly string[]): Form {
  const form = formAround();
  if (form === undefined) throw new Error("a field needs a form around it: see provideForm");
  $effect(() => {
    const removals = fields().map((field) => untrack(() => form.add(field)));
    return () => removals.forEach((remove) => remove());
  });
  return form;
}

/** Moves the focus to the first control with an error, once the errors are on the page. Returns false if there is none. */
export async function focusFirstWrong(form: HTMLElement | undefined): Promise<boolean> {
  await tick();
  const wrong = form?.querySelector<HTMLElement>("[aria-invalid='true'], [data-refused]");
  // A group of radio buttons takes no focus itself.
  const control = wrong?.matches("fieldset") ? wrong.querySelector<HTMLElement>("input:enabled") : wrong;
  control?.focus();
  return Boolean(wrong);
}
