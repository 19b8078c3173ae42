//! Rate limits: per token and project for valid tokens, per address for everything else. Memory is bounded.
//!
//! Clients behind one address share as little as possible:
//! - A valid token is charged to itself alone.
//! - A text without this control plane's code is charged as a request without a token. It is never looked up, and delays no token.
//! - An expired or revoked token has its own rate, and is charged to its address once.
//! - Texts with the code that match no token, and many expired tokens, are charged to their address. That rate delays neither tokens that
//!   were valid before nor enrollments. A part of all look-ups is reserved for tokens that were valid before.
//!
//! Deliberately absent: health and metrics, which probes read, and the connections of nodes, which have their own limits.

use std::{
    collections::HashSet,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use gpuaas_engine::port::Runtime;
use gpuaas_model::{Code, Principal, ProjectId, RateLimiter, ServiceAccountId, TokenId};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{peer::PeerAddress, problem::ApiProblem};

/// Invalid tokens with a correct code per second and address, each counted once; the same for enrollment tokens. Each invalid token may be
/// tried at the same rate.
const FAILURES_PER_SECOND: NonZeroU32 = NonZeroU32::new(10).expect("it is not zero");
/// Enrollments per second and address. With the burst, two hundred machines behind one address can enroll at the same time.
const ENROLLMENTS_PER_ADDRESS: NonZeroU32 = NonZeroU32::new(50).expect("it is not zero");
/// Requests per second by all tokens of one controller: it reports what changed, and reads what it needs for that.
const REQUESTS_PER_CONTROLLER: NonZeroU32 = NonZeroU32::new(20).expect("it is not zero");
/// Interval at which a token may sign browsers in: each sign-in is written to the audit and the events.
const SIGN_IN_EVERY: Duration = Duration::from_secs(10);
/// Sign-ins with a token in one burst.
const SIGN_INS_AT_ONCE: u32 = 30;
/// Tokens whose sign-ins are counted one by one; further ones share one rate.
const SIGN_IN_TOKENS_MAX: usize = 10_000;
/// Path of the enrollment.
const ENROLL_PATH: &str = "/api/v1/enroll";
/// Concurrent look-ups of tokens that are not known to be valid: fewer than the store has readers.
const UNKNOWN_LOOKUPS_MAX: usize = 2;
/// Digests of valid tokens that are stored at one time.
const VALID_MAX: usize = 10_000;

/// Request rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rates {
    /// Requests per second by one token.
    pub per_token: NonZeroU32,
    /// Requests per second by all tokens of one project.
    pub per_project: NonZeroU32,
    /// Requests per second from one address.
    pub per_address: NonZeroU32,
}

impl Rates {
    /// Defaults: a fast script stays below them, a runaway loop does not.
    pub const DEFAULT: Self = Self {
        per_token: NonZeroU32::new(1_000).expect("it is not zero"),
        per_project: NonZeroU32::new(2_000).expect("it is not zero"),
        per_address: NonZeroU32::new(2_000).expect("it is not zero"),
    };
}

/// Credential class of a request. An address has a separate rate for each class, so requests without a token delay none with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CredentialClass {
    /// A token with a correct code that is not known to be valid yet.
    Token,
    /// An enrollment. Its token is in the body, which is not read yet.
    Enrollment,
    /// No token, a text without a correct code, or an expired or revoked token.
    Unauthenticated,
}

/// The rate limiters of the API.
pub(crate) struct Limits {
    tokens: RateLimiter<TokenId>,
    projects: RateLimiter<ProjectId>,
    controllers: RateLimiter<ServiceAccountId>,
    sign_ins: RateLimiter<TokenId>,
    addresses: RateLimiter<(PeerAddress, CredentialClass)>,
    bad_tokens: Failures,
    bad_enrollments: Failures,
    enrollments: RateLimiter<PeerAddress>,
    valid: Mutex<HashSet<String>>,
    unknown_lookups: Semaphore,
    runtime: Arc<dyn Runtime>,
}

impl Limits {
    pub(crate) fn new(rates: Rates, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            tokens: RateLimiter::per_second(rates.per_token),
            projects: RateLimiter::per_second(rates.per_project),
            controllers: RateLimiter::per_second(REQUESTS_PER_CONTROLLER),
            sign_ins: RateLimiter::new(SIGN_IN_EVERY, SIGN_IN_EVERY * SIGN_INS_AT_ONCE, SIGN_IN_TOKENS_MAX),
            addresses: RateLimiter::per_second(rates.per_address),
            bad_tokens: Failures::new(),
            bad_enrollments: Failures::new(),
            enrollments: RateLimiter::per_second(ENROLLMENTS_PER_ADDRESS),
            valid: Mutex::default(),
            unknown_lookups: Semaphore::new(UNKNOWN_LOOKUPS_MAX),
            runtime,
        }
    }

    /// Counts a request of an authenticated caller against its token and against its project; that of a controller also against its service
    /// account, because every report that changes something is written.
    pub(crate) fn count_caller(&self, caller: &Principal) -> Result<(), RateExceeded> {
        let now = self.runtime.elapsed();
        self.tokens.take(&caller.token, now).map_err(|wait| RateExceeded { what: "requests with this token", wait })?;
        if let Some(account) = caller.service_account.filter(|_| caller.role.is_of_workload()) {
            let taken = self.controllers.take(&account, now);
            taken.map_err(|wait| RateExceeded { what: "requests of this controller", wait })?;
        }
        let Some(project) = caller.project else { return Ok(()) };
        self.projects
            .take(&project, now)
            .map_err(|wait| RateExceeded { what: "requests with tokens of this project", wait })
    }

    /// Counts a sign-in with a token. Those with a link need no rate: a token has few links issued.
    pub(crate) fn count_sign_in(&self, token: TokenId) -> Result<(), RateExceeded> {
        let taken = self.sign_ins.take(&token, self.runtime.elapsed());
        taken.map_err(|wait| RateExceeded { what: "sign-ins with this token", wait })
    }

    /// Counts a request against an address.
    pub(crate) fn count_address(&self, from: PeerAddress, class: CredentialClass) -> Result<(), RateExceeded> {
        let taken = self.addresses.take(&(from, class), self.runtime.elapsed());
        taken.map_err(|wait| RateExceeded { what: "requests from this address", wait })
    }

    /// Returns the credential class of a request with a token of this digest; `None` if the request will be charged to the token.
    pub(crate) fn credential_class(&self, path: &str, sha256: Option<&str>) -> Option<CredentialClass> {
        match sha256 {
            // An enrollment is classified by its path, regardless of the token in its headers.
            _ if path == ENROLL_PATH => Some(CredentialClass::Enrollment),
            Some(sha256) if self.was_valid(sha256) => None,
            Some(sha256) if !self.bad_tokens.contains(sha256) => Some(CredentialClass::Token),
            Some(_) | None => Some(CredentialClass::Unauthenticated),
        }
    }

    /// Returns whether the token was valid at its latest look-up.
    fn was_valid(&self, sha256: &str) -> bool {
        self.valid.lock().unwrap_or_else(PoisonError::into_inner).contains(sha256)
    }

    /// Permits the look-up of a token: immediately if it was valid before, otherwise when one of the [`UNKNOWN_LOOKUPS_MAX`] permits is free.
    /// The permit lasts until the result is dropped. Refuses a token that was invalid too often, and a new token from an address that sent
    /// too many invalid ones.
    pub(crate) async fn lookup_permit(
        &self,
        from: Option<PeerAddress>,
        sha256: &str,
    ) -> Result<LookupPermit<'_>, RateExceeded> {
        if self.was_valid(sha256) {
            return Ok(LookupPermit(None));
        }
        self.bad_tokens.check(from, sha256, self.runtime.elapsed())?;
        // The semaphore is never closed.
        Ok(LookupPermit(self.unknown_lookups.acquire().await.ok()))
    }

    /// Records a token as valid, after its creation or look-up. Returns whether it was not recorded before.
    pub(crate) fn record_valid(&self, sha256: &str) -> bool {
        let mut valid = self.valid.lock().unwrap_or_else(PoisonError::into_inner);
        if valid.len() >= VALID_MAX && !valid.contains(sha256) {
            // Removes an arbitrary entry; its token is looked up again at its next request.
            let other = valid.iter().next().cloned();
            other.map(|other| valid.remove(&other));
        }
        valid.insert(sha256.to_owned())
    }

    /// Records the result of a look-up.
    pub(crate) fn record_lookup(&self, from: Option<PeerAddress>, sha256: &str, is_valid: bool) {
        if is_valid {
            // The request was charged to the address before the token was known to be valid.
            if self.record_valid(sha256)
                && let Some(from) = from
            {
                self.addresses.refund(&(from, CredentialClass::Token));
            }
            return;
        }
        self.valid.lock().unwrap_or_else(PoisonError::into_inner).remove(sha256);
        self.bad_tokens.count(from, sha256, self.runtime.elapsed());
    }

    /// Counts an enrollment by the digest of its token, which has a correct code, or refuses it. A repeated failing token does not count
    /// against its address as another machine.
    pub(crate) fn count_enrollment(&self, from: Option<PeerAddress>, sha256: &str) -> Result<(), RateExceeded> {
        let now = self.runtime.elapsed();
        self.bad_enrollments.check(from, sha256, now)?;
        let Some(from) = from.filter(|_| !self.bad_enrollments.contains(sha256)) else { return Ok(()) };
        self.enrollments.take(&from, now).map_err(|wait| RateExceeded { what: "enrollments from this address", wait })
    }

    /// Records a failed enrollment. `was_valid` means that the token was valid once; it is then not charged to the address.
    pub(crate) fn record_failed_enrollment(&self, from: Option<PeerAddress>, sha256: &str, was_valid: bool) {
        self.bad_enrollments.count(from.filter(|_| !was_valid), sha256, self.runtime.elapsed());
    }
}

/// Invalid tokens with a correct code: limits how often each may be tried, and how many new ones an address may send.
struct Failures {
    tokens: RateLimiter<String>,
    addresses: RateLimiter<PeerAddress>,
}

impl Failures {
    fn new() -> Self {
        Self {
            tokens: RateLimiter::per_second(FAILURES_PER_SECOND),
            addresses: RateLimiter::per_second(FAILURES_PER_SECOND),
        }
    }

    /// Returns whether the token with this digest is recorded as invalid.
    fn contains(&self, sha256: &str) -> bool {
        self.tokens.contains(sha256)
    }

    /// Refuses a token that was invalid too often, and a token not yet recorded from an address that sent too many invalid ones.
    fn check(&self, from: Option<PeerAddress>, sha256: &str, now: Duration) -> Result<(), RateExceeded> {
        if self.contains(sha256) {
            return self
                .tokens
                .peek(sha256, now)
                .map_err(|wait| RateExceeded { what: "uses of an invalid token", wait });
        }
        let result = from.map_or(Ok(()), |from| self.addresses.peek(&from, now));
        result.map_err(|wait| RateExceeded { what: "invalid credentials from this address", wait })
    }

    /// Counts an invalid token: each time against itself, the first time against its address.
    fn count(&self, from: Option<PeerAddress>, sha256: &str, now: Duration) {
        // An exhausted rate needs no error here: it refuses the next look-up.
        if let Some(from) = from.filter(|_| !self.contains(sha256)) {
            let _ = self.addresses.take(&from, now);
        }
        let _ = self.tokens.take(&sha256.to_owned(), now);
    }
}

/// Permit of a look-up, held until dropped.
pub(crate) struct LookupPermit<'a>(
    #[expect(dead_code, reason = "held until dropped, never read")] Option<SemaphorePermit<'a>>,
);

/// The exceeded limit, and the time to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RateExceeded {
    what: &'static str,
    wait: Duration,
}

impl From<RateExceeded> for ApiProblem {
    fn from(refused: RateExceeded) -> Self {
        let seconds = refused.wait.as_secs() + 1;
        let problem = Self::new(Code::RateLimited, format!("too many {}", refused.what));
        problem.then(format!("try again after {seconds} s")).after(seconds)
    }
}

#[cfg(test)]
mod tests;
