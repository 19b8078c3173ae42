//! Who has which role in a project: the holders of its valid tokens, and its service accounts.

import type { Role, ServiceAccount, Token } from "../../api/types";
import { compareNames } from "../../text/order";
import { tokenState } from "../access/tokens";

export interface RoleHolder {
  /** Of the service account, or of the holder's first valid token: it stays when there is another one. */
  id: string;
  name: string;
  isAccount: boolean;
  role: Role;
  /** Name of the workload that a service account controls. */
  workload: string | undefined;
  /** How many valid tokens the holder has. A service account can be without. */
  tokens: number;
  /** When the last of them expires; `undefined` without one, and for tokens that do not. */
  until: string | undefined;
}

/** The server gives this prefix to the tokens of service accounts, and to no others. */
const ACCOUNT_PREFIX = "service-account/";
/** From the role with the most permissions to that with the fewest. */
const ROLES: readonly Role[] = ["project-admin", "project-member", "viewer", "auditor", "app-controller"];

/** The holders of roles in a project by role, each name once a role. */
export function holdersOf(tokens: readonly Token[], accounts: readonly ServiceAccount[], now: number): RoleHolder[] {
  const held = new Map<string, Token[]>();
  for (const token of tokens.filter((candidate) => tokenState(candidate, now) === "valid")) {
    const key = token.name.startsWith(ACCOUNT_PREFIX) ? token.name : `${token.role} ${token.name}`;
    held.set(key, [...(held.get(key) ?? []), token]);
  }
  const present = accounts.filter((account) => !account.deleted_at);
  const ofAccounts = present.map((account) => holderOfAccount(account, held.get(ACCOUNT_PREFIX + account.name) ?? []));
  const ofTokens = [...held.values()].flatMap((own) => {
    const first = own.reduce((a, b) => (Date.parse(b.created_at) < Date.parse(a.created_at) ? b : a));
    if (first.name.startsWith(ACCOUNT_PREFIX)) return [];
    return [{ ...facts(own), id: first.id, name: first.name, isAccount: false, role: first.role, workload: undefined }];
  });
  return [...ofTokens, ...ofAccounts].sort(
    (a, b) => ROLES.indexOf(a.role) - ROLES.indexOf(b.role) || compareNames(a.name, b.name),
  );
}

function holderOfAccount(account: ServiceAccount, tokens: readonly Token[]): RoleHolder {
  const { id, name, role, workload_name: workload } = account;
  return { ...facts(tokens), id, name, isAccount: true, role, workload: workload ?? undefined };
}

function facts(tokens: readonly Token[]): Pick<RoleHolder, "tokens" | "until"> {
  const ends = tokens.map(({ expires_at: end }) => end ?? undefined);
  const isEndless = ends.includes(undefined);
  const last = ends.filter((end) => end !== undefined).sort((a, b) => Date.parse(b) - Date.parse(a))[0];
  return { tokens: tokens.length, until: isEndless ? undefined : last };
}
