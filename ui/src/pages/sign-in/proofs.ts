//! What a person can sign in with, by the API's names. A proof that the API adds does not compile before it is here and has a form in `SignIn`.

import type { SessionProof } from "../../api/types";
import { words } from "../../text/plain";

interface Proof {
  /** Above its form. */
  heading: string;
  /** What a session began with. */
  name: string;
}

/** In the order of the sign-in page. */
export const PROOFS: Readonly<Record<SessionProof, Proof>> = {
  sign_in_link: { heading: "With a one-time link", name: "a sign-in link" },
  token: { heading: "With a token", name: "a token" },
};

/** What a session began with, in words. A newer control plane may name a proof that this page does not know. */
export function proofName(proof: string): string {
  return Object.hasOwn(PROOFS, proof) ? PROOFS[proof as SessionProof].name : words(proof);
}
