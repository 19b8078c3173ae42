//! The session of this browser. Its secret is a cookie that no script can read; the CSRF token is kept in memory alone.

import { hub } from "../live/hub.svelte";
import { credentials, requestJson } from "./client";
import { ProblemError, problemOf } from "./problem";
import type { Permission, Problem, Project, Role } from "./types";

/** Answer of `GET /api/v1/session` to a browser. */
export interface SessionDocument {
  id: string;
  user: string;
  role: Role;
  permissions: Permission[];
  /** At most 1,000; `GET /api/v1/projects` lists more. */
  projects: Project[];
  csrf: string;
  expires_at: string;
  idle_expires_at: string;
  control_plane_version: string;
}

export type Credential = { code: string } | { token: string };

type Status = "unknown" | "signed_in" | "signed_out" | "unreachable";

const RETRY_MS = 3_000;

class Session {
  status = $state<Status>("unknown");
  /** Why nobody is signed in, if something went wrong. */
  problem = $state.raw<Problem>();
  /** True if a session was there before: it ended while the page was open. */
  ended = $state(false);
  #document = $state.raw<SessionDocument>();
  #chosen = $state<string>();

  constructor() {
    credentials.onSessionLost = () => this.#lost();
    credentials.onCsrfRefused = () => void this.load();
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
    const { projects } = this;
    return (projects.find((project) => project.name === this.#chosen) ?? projects[0])?.name;
  }

  may(permission: Permission): boolean {
    return this.#document?.permissions.includes(permission) ?? false;
  }

  /** Takes over the project of an address. */
  choose(project: string | undefined): void {
    if (project === undefined || project === this.#chosen) return;
    const before = this.project;
    this.#chosen = project;
    if (this.status === "signed_in" && this.project !== before) this.#connect();
  }

  /** Asks whether this browser is signed in. */
  async load(): Promise<void> {
    try {
      this.#began(documentFrom(await requestJson("GET", "/api/v1/session")));
    } catch (thrown) {
      if (thrown instanceof ProblemError && thrown.problem.status === 401) {
        this.#lost();
      } else if (this.status !== "signed_in") {
        this.status = "unreachable";
        this.problem = problemOf(thrown);
        setTimeout(() => void this.load(), RETRY_MS);
      }
    }
  }

  /** Exchanges a one-time code or a token for a session. Throws a [`ProblemError`]. */
  async signIn(credential: Credential): Promise<void> {
    this.#began(documentFrom(await requestJson("POST", "/api/v1/sessions", credential)));
  }

  /** Ends the session, on the server first. */
  async signOut(): Promise<void> {
    const id = this.#document?.id;
    if (id !== undefined) await requestJson("DELETE", `/api/v1/sessions/${id}`);
    this.#document = undefined;
    this.ended = false;
    this.#lost();
  }

  #began(document: SessionDocument): void {
    const isOther = this.#document?.user !== document.user || this.status !== "signed_in";
    this.#document = document;
    credentials.csrf = document.csrf;
    this.problem = undefined;
    this.ended = false;
    this.status = "signed_in";
    if (isOther) this.#connect();
  }

  #lost(): void {
    this.ended ||= this.#document !== undefined;
    this.#document = undefined;
    credentials.csrf = "";
    hub.disconnect();
    this.status = "signed_out";
  }

  #connect(): void {
    hub.connect(this.project, this.may("platform.read"));
  }
}

/** The document of this version's server; the answer of another one still has these fields. */
function documentFrom(answer: unknown): SessionDocument {
  return answer as SessionDocument;
}

export const session = new Session();
