//! The session of this browser. Its secret is a cookie that no script can read; the CSRF token is kept in memory alone.
//!
//! Guarantees: when a session ends by itself, the open page is covered and kept for the person who had it; it sends nothing until that person
//! has signed in again. When another person signs in, here or in another tab of the browser, nothing of the page stays.

import { hub } from "../live/hub.svelte";
import { api, credentials, take } from "./client";
import { hold } from "./hold";
import { ProblemError, problemOf, unreadable } from "./problem";
import type { CurrentSession, Permission, Problem, Project, Role } from "./types";

/** The session of a browser: one by bearer has no id and no CSRF token. */
type SessionDocument = CurrentSession & { id: string; csrf: string };

export type Credential = { code: string } | { token: string };

type Status = "unknown" | "signed_in" | "signed_out" | "unreachable";

export const RETRY_MS = 3_000;
/** How long a covered page is kept. A session that ended without use has left its page unattended for half an hour already. */
export const KEPT_MS = 3_600_000;
/** How often the age of a covered page is looked at. */
export const KEPT_CHECK_MS = 60_000;
/** A session's document lists so many projects; there may be more. */
const LISTED_MAX = 1_000;

/** The other tabs of this browser, which have the same cookie. */
const tabs = typeof window === "undefined" ? undefined : new BroadcastChannel("gpuaas-session");

class Session {
  status = $state<Status>("unknown");
  /** Why nobody is signed in, if something went wrong. */
  problem = $state.raw<Problem>();
  /** True if a session was there before: it ended while the page was open. */
  ended = $state(false);
  /** True while the sign-in covers a page whose session ended. */
  isCovered = $state(false);
  /** Reloads the shell at its first page. */
  onReplaced: () => void = () => undefined;
  #document = $state.raw<SessionDocument>();
  #chosen = $state<string>();
  #retry: ReturnType<typeof setTimeout> | undefined;
  #forgetting: ReturnType<typeof setInterval> | undefined;
  /** Counts requests for the session, sign-ins and sign-outs: a response to a request from before the last of them may be outdated. */
  #revision = 0;
  /** The token for which this tab has shown pages: it is who a person is. Names are not, because two tokens may have the same one. */
  #holder: string | undefined;
  /** What the event streams follow: they begin again when it is another session or project. */
  #followed: string | undefined;

  constructor() {
    credentials.onSessionLost = () => this.#lost();
    credentials.onCsrfRefused = () => void this.load();
    tabs?.addEventListener("message", ({ data }) => {
      if (data === "signed_out") this.#left();
      else void this.load();
    });
  }

  /** True while there is a page: of the present session, or of one that ended. */
  get hasPage(): boolean {
    return this.status === "signed_in" || this.isCovered;
  }

  get id(): string | undefined {
    return this.#document?.id;
  }

  get user(): string {
    return this.#document?.user ?? "";
  }

  get role(): Role | undefined {
    return this.#document?.role;
  }

  get version(): string | undefined {
    return this.#document?.control_plane_version;
  }

  get projects(): Project[] {
    return this.#document?.projects ?? [];
  }

  /** Name of the project that pages show; `undefined` while a platform has none. */
  get project(): string | undefined {
    return this.#chosen === undefined ? this.projects[0]?.name : this.nameOfProject(this.#chosen);
  }

  /** True if the address names a project that does not exist or that the session may not see. No other one is shown in its place. */
  get isProjectUnknown(): boolean {
    return this.#chosen !== undefined && this.projects.length < LISTED_MAX && !this.#find(this.#chosen);
  }

  /** The name of a project of which the name or the id is known. */
  nameOfProject(project: string): string;
  nameOfProject(project: string | undefined): string | undefined;
  nameOfProject(project: string | undefined): string | undefined {
    return project === undefined ? undefined : (this.#find(project)?.name ?? project);
  }

  /**
   * The project that a command line about something of `project` must name, by default of the chosen one; `undefined` if the session's token
   * belongs to a single project.
   */
  projectOfLine(project = this.project): string | undefined {
    return this.#document?.project ? undefined : project;
  }

  may(permission: Permission): boolean {
    return this.#document?.permissions.includes(permission) ?? false;
  }

  /** Takes over the project of an address. An address without one keeps the choice, unless there is no such project. */
  choose(project: string | undefined): void {
    const isLost = this.status === "signed_in" && this.isProjectUnknown;
    if (project === this.#chosen || (project === undefined && !isLost)) return;
    this.#chosen = project;
    if (this.status === "signed_in") this.#connect();
  }

  /** Forgets a project that was deleted: the first of the others is chosen. */
  forgetProject(id: string): void {
    const before = this.#document;
    const deleted = this.#find(id);
    if (before === undefined || deleted === undefined) return;
    if (this.#chosen === deleted.name || this.#chosen === id) this.#chosen = undefined;
    this.#document = { ...before, projects: before.projects.filter((project) => project.id !== id) };
    this.#connect();
  }

  /** Asks whether this browser is signed in, until there is an answer. */
  async load(): Promise<void> {
    clearTimeout(this.#retry);
    const revision = this.#nextRevision();
    try {
      const document = documentFrom(await take(api.GET("/api/v1/session")));
      if (revision === this.#revision) this.#began(document);
    } catch (thrown) {
      if (revision === this.#revision) this.#refused(thrown);
    }
  }

  /** Exchanges a one-time code or a token for a session. Throws a [`ProblemError`]. */
  async signIn(credential: Credential): Promise<void> {
    const revision = this.#revision;
    const document = documentFrom(await take(api.POST("/api/v1/sessions", { body: credential })));
    // Another person's page in another tab must not stay either, and one that is covered continues.
    tabs?.postMessage("signed_in");
    // Something happened meanwhile, perhaps a sign-in of somebody else in another tab: the cookie says which of them was the last.
    if (revision !== this.#revision) return this.load();
    this.#nextRevision();
    this.#began(document);
  }

  /** Ends the session, on the server first. */
  async signOut(): Promise<void> {
    const id = this.#document?.id;
    if (id !== undefined) {
      await take(api.DELETE("/api/v1/sessions/{id}", { params: { path: { id } } })).catch((thrown: unknown) => {
        // A session that has ended already needs no end.
        if (!(thrown instanceof ProblemError && thrown.problem.status === 401)) throw thrown;
      });
    }
    tabs?.postMessage("signed_out");
    this.#left();
  }

  /** Makes the responses to earlier requests outdated. */
  #nextRevision(): number {
    this.#revision += 1;
    return this.#revision;
  }

  /** There is no session, or no answer. A page that is open asks again, too: in another tab, somebody else may have signed in. */
  #refused(thrown: unknown): void {
    if (thrown instanceof ProblemError && thrown.problem.status === 401) {
      this.#lost();
      return;
    }
    if (this.status === "unknown" || this.status === "unreachable") {
      this.status = "unreachable";
      this.problem = problemOf(thrown);
    }
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => void this.load(), RETRY_MS);
  }

  #began(document: SessionDocument): void {
    clearTimeout(this.#retry);
    clearInterval(this.#forgetting);
    if (this.#holder !== undefined && this.#holder !== document.token) {
      this.#replaced();
      return;
    }
    this.#holder = document.token;
    this.#document = document;
    credentials.csrf = document.csrf;
    this.problem = undefined;
    this.ended = false;
    this.isCovered = false;
    this.status = "signed_in";
    this.#connect();
    hold.end(true);
  }

  /** The session ended by itself. Its page waits for the same person. */
  #lost(): void {
    clearTimeout(this.#retry);
    credentials.csrf = "";
    this.status = "signed_out";
    if (this.#document === undefined || this.isCovered) return;
    this.ended = true;
    this.isCovered = true;
    hold.begin();
    this.#forgetLater();
  }

  /** Forgets the covered page once it is too old. Timers stop while a computer sleeps, so its clock counts, too. */
  #forgetLater(): void {
    const [clock, awake] = [Date.now(), performance.now()];
    clearInterval(this.#forgetting);
    this.#forgetting = setInterval(() => {
      if (Math.max(Date.now() - clock, performance.now() - awake) >= KEPT_MS) this.#forget();
    }, KEPT_CHECK_MS);
  }

  /** The person signed out: nothing of the page stays. */
  #left(): void {
    this.#nextRevision();
    clearTimeout(this.#retry);
    this.#forget();
    credentials.csrf = "";
    this.ended = false;
    this.status = "signed_out";
  }

  /** Another person is signed in. Reloading the shell also ends what the earlier page was doing, and clears what it had in memory. */
  #replaced(): void {
    this.#forget();
    this.#holder = undefined;
    this.status = "unknown";
    this.onReplaced();
  }

  #forget(): void {
    clearInterval(this.#forgetting);
    this.#document = undefined;
    this.isCovered = false;
    this.#followed = undefined;
    hub.disconnect();
    hold.end(false);
  }

  #find(project: string): Project | undefined {
    return this.projects.find((known) => known.name === project || known.id === project);
  }

  /** Follows the chosen project, unless the streams of this session follow it already. */
  #connect(): void {
    const project = this.isProjectUnknown ? undefined : this.project;
    const hasPlatform = this.may("platform.read");
    // A project that was deleted and created again has the same name and another id. A new session of the same person continues the streams.
    const followed = JSON.stringify([this.#document?.token, project && this.#find(project)?.id, project, hasPlatform]);
    if (followed === this.#followed) return;
    this.#followed = followed;
    hub.connect(project, hasPlatform);
  }
}

/** Narrows an answer to what a browser's session has. Throws a [`ProblemError`] if it is the answer to another client. */
function documentFrom(answer: CurrentSession): SessionDocument {
  const { id, csrf } = answer;
  if (!id || !csrf) {
    const next = "Check that no proxy adds an Authorization header to the requests of this browser.";
    throw unreadable("The control plane answered without a session of this browser.", next);
  }
  return { ...answer, id, csrf };
}

export const session = new Session();
