//! What somebody typed to sign in.

import type { Credential } from "../../api/session.svelte";

/** Codes of links begin so; tokens with `gpuaas_`. */
const CODE_PREFIX = "gpuaas-link_";

/** A whole link, its code, or a token. */
export function credentialFrom(typed: string): Credential | undefined {
  const text = typed.trim();
  if (text === "" || /\s/.test(text)) return undefined;
  const code = /#sign-in=(.+)$/.exec(text)?.[1];
  if (text.startsWith(CODE_PREFIX)) return { code: text };
  return code === undefined ? { token: text } : { code };
}
