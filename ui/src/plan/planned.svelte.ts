//! A request that is shown as a plan before it runs.
//!
//! Guarantees: what runs is the plan that was shown, or nothing: the request carries the plan's digest. If another plan would run by then, the
//! refusal says how it differs, and the newer plan takes the place of the old one for another decision. A plan that arrives after the request
//! became another one is discarded.

import { Submission } from "../api/submission.svelte";
import type { Preview, Problem, Started } from "../api/types";

export interface PlanQuery {
  dry_run?: true;
  plan_digest?: string;
}

/** Sends the request, as a dry run, or with the digest of the plan that was shown. */
export type Send<Body> = (body: Body, query: PlanQuery, key: string | undefined) => Promise<Preview | Started>;

export class PlannedRun<Body> {
  plan = $state.raw<Preview>();
  /** How the plan differs from one that was shown before. */
  changed = $state.raw<Problem>();
  #body: Body | undefined;
  /** Counts the requests: an answer to an earlier one says nothing about the present one. */
  #revision = 0;
  #planning = $state.raw(new Submission());
  #running = new Submission();

  constructor(private readonly send: Send<Body>) {}

  get isPlanning(): boolean {
    return this.#planning.busy;
  }

  get isRunning(): boolean {
    return this.#running.busy;
  }

  get problem(): Problem | undefined {
    return this.#running.problem ?? this.#planning.problem;
  }

  /** Asks for the plan of `body`. True if there is one. */
  async review(body: Body): Promise<boolean> {
    this.clear();
    return this.#read(body);
  }

  /** Runs the shown plan. */
  async run(): Promise<Started | undefined> {
    const { plan } = this;
    const body = this.#body;
    if (plan === undefined || body === undefined) return undefined;
    const digest = plan.digest;
    const sent = { body, digest };
    const revision = this.#revision;
    this.changed = undefined;
    const started = await this.#running.run(sent, (_, key) =>
      this.send(body, digest === undefined ? {} : { plan_digest: digest }, key),
    );
    if (started !== undefined && "operation" in started) return started;
    if (revision === this.#revision && this.#running.problem?.code === "plan_changed") {
      const changed = this.#running.problem;
      this.#running.clear();
      if (await this.#read(body)) this.changed = changed;
    }
    return undefined;
  }

  /** Forgets the plan, because the request becomes another one. */
  clear(): void {
    this.#revision += 1;
    this.plan = undefined;
    this.changed = undefined;
    // A new one, because the old one may still wait for the plan of the earlier request.
    this.#planning = new Submission();
    this.#running.clear();
  }

  async #read(body: Body): Promise<boolean> {
    this.#body = body;
    const revision = this.#revision;
    const plan = await this.#planning.run(body, (sent) => this.send(sent, { dry_run: true }, undefined));
    if (revision !== this.#revision || plan === undefined || !("steps" in plan)) return false;
    this.plan = plan;
    return true;
  }
}
