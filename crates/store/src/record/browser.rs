//! Records of browsers that are signed in, and of the links that sign them in.

use gpuaas_model::{BrowserSessionId, SessionProof, SignInLinkId, Timestamp, TokenId};
use serde::{Deserialize, Serialize};

/// A session of a browser. It has the rights of its token and ends with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrowserSessionRecord {
    /// Unique id of the session.
    pub id: BrowserSessionId,
    /// SHA-256 of the cookie's value, 64 hex digits.
    pub sha256: String,
    /// The token that the session acts for.
    pub token: TokenId,
    /// The proof with which the session began.
    pub proof: SessionProof,
    /// What the browser calls itself, shortened; absent if it did not send a name.
    pub user_agent: Option<String>,
    /// When the session began.
    pub created_at: Timestamp,
    /// When a request used the session; up to a minute older than the newest request.
    pub last_used_at: Timestamp,
    /// When the session ends unless a later request uses it.
    pub idle_expires_at: Timestamp,
    /// When the session ends, whatever uses it.
    pub expires_at: Timestamp,
}

impl BrowserSessionRecord {
    /// Returns when the session ends unless a later request uses it.
    pub fn ends_at(&self) -> Timestamp {
        self.expires_at.min(self.idle_expires_at)
    }
}

/// A one-time sign-in link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInLinkRecord {
    /// Unique id of the link.
    pub id: SignInLinkId,
    /// SHA-256 of the link's code, 64 hex digits.
    pub sha256: String,
    /// The token that had the link issued, and that its session acts for.
    pub token: TokenId,
    /// When the link was issued.
    pub created_at: Timestamp,
    /// When the link becomes void.
    pub expires_at: Timestamp,
    /// When the link began a session.
    pub used_at: Option<Timestamp>,
}
