//! How a person behind a browser proved who they are.

use crate::state::text_enum;

text_enum! {
    /// The proof with which a browser's session began. Sign-in through an identity provider (OIDC) adds a variant here; everything after
    /// it is the same for every proof.
    SessionProof {
        /// A one-time sign-in link, which the holder of a token had issued.
        SignInLink = "sign_in_link",
        /// An API token, entered on the sign-in page.
        Token = "token",
    }
}
