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

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use gpuaas_engine::port::Runtime;
use gpuaas_model::{Code, Principal, ProjectId, TokenId};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::{
    auth,
    pace::Pace,
    peer::{self, PeerAddress},
    problem::ApiProblem,
    state::ApiState,
};

/// Invalid tokens with a correct code per second and address, each counted once; the same for enrollment tokens. Each invalid token may be
/// tried at the same rate.
const FAILURES: NonZeroU32 = NonZeroU32::new(10).expect("it is not zero");
/// Enrollments per second and address. With the burst, two hundred machines behind one address can enroll at the same time.
const ENROLLMENTS_PER_ADDRESS: NonZeroU32 = NonZeroU32::new(50).expect("it is not zero");
/// Path of the enrollment.
const ENROLL_PATH: &str = "/api/v1/enroll";
/// Concurrent look-ups of tokens that are not known to be valid: fewer than the store has readers.
const UNKNOWN_AT_ONCE: usize = 2;
/// Digests of valid tokens that are stored at one time.
const GOOD_MAX: usize = 10_000;

/// Request rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paces {
    /// Requests per second by one token.
    pub per_token: NonZeroU32,
    /// Requests per second by all tokens of one project.
    pub per_project: NonZeroU32,
    /// Requests per second from one address.
    pub per_address: NonZeroU32,
}

impl Paces {
    /// Defaults: a fast script stays below them, a runaway loop does not.
    pub const USUAL: Self = Self {
        per_token: NonZeroU32::new(1_000).expect("it is not zero"),
        per_project: NonZeroU32::new(2_000).expect("it is not zero"),
        per_address: NonZeroU32::new(2_000).expect("it is not zero"),
    };
}

/// Credential class of a request. An address has a separate rate for each class, so requests without a token delay none with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Offered {
    /// A token with a correct code that is not known to be valid yet.
    Token,
    /// An enrollment. Its token is in the body, which is not read yet.
    Enrollment,
    /// No token, a text without a correct code, or an expired or revoked token.
    Nothing,
}

/// The rate limiters of the API.
pub(crate) struct Limits {
    tokens: Pace<TokenId>,
    projects: Pace<ProjectId>,
    addresses: Pace<(PeerAddress, Offered)>,
    bad_tokens: Failures,
    bad_enrollments: Failures,
    enrollments: Pace<PeerAddress>,
    good: Mutex<HashSet<String>>,
    unknown: Semaphore,
    runtime: Arc<dyn Runtime>,
}

impl Limits {
    pub(crate) fn new(paces: Paces, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            tokens: Pace::per_second(paces.per_token),
            projects: Pace::per_second(paces.per_project),
            addresses: Pace::per_second(paces.per_address),
            bad_tokens: Failures::new(),
            bad_enrollments: Failures::new(),
            enrollments: Pace::per_second(ENROLLMENTS_PER_ADDRESS),
            good: Mutex::default(),
            unknown: Semaphore::new(UNKNOWN_AT_ONCE),
            runtime,
        }
    }

    /// Counts a request of an authenticated caller against its token and against its project.
    pub(crate) fn count_caller(&self, caller: &Principal) -> Result<(), TooOften> {
        let now = self.runtime.elapsed();
        self.tokens.take(&caller.token, now).map_err(|wait| TooOften { who: "this token asks", wait })?;
        let Some(project) = caller.project else { return Ok(()) };
        self.projects.take(&project, now).map_err(|wait| TooOften { who: "the tokens of this project ask", wait })
    }

    /// Counts a request against an address.
    fn count_address(&self, from: PeerAddress, offered: Offered) -> Result<(), TooOften> {
        let taken = self.addresses.take(&(from, offered), self.runtime.elapsed());
        taken.map_err(|wait| TooOften { who: "this address asks", wait })
    }

    /// Returns the credential class of a request with a token of this digest; `None` if the request will be charged to the token.
    fn offered(&self, path: &str, sha256: Option<&str>) -> Option<Offered> {
        match sha256 {
            // An enrollment is classified by its path, regardless of the token in its headers.
            _ if path == ENROLL_PATH => Some(Offered::Enrollment),
            Some(sha256) if self.was_good(sha256) => None,
            Some(sha256) if !self.bad_tokens.knows(sha256) => Some(Offered::Token),
            Some(_) | None => Some(Offered::Nothing),
        }
    }

    /// Returns whether the token was valid at its latest look-up.
    fn was_good(&self, sha256: &str) -> bool {
        self.good.lock().unwrap_or_else(PoisonError::into_inner).contains(sha256)
    }

    /// Permits the look-up of a token: immediately if it was valid before, otherwise when one of the [`UNKNOWN_AT_ONCE`] permits is free.
    /// The permit lasts until the result is dropped. Refuses a token that was invalid too often, and a new token from an address that sent
    /// too many invalid ones.
    pub(crate) async fn turn_to_look_up(&self, from: Option<PeerAddress>, sha256: &str) -> Result<Turn<'_>, TooOften> {
        if self.was_good(sha256) {
            return Ok(Turn(None));
        }
        self.bad_tokens.look(from, sha256, self.runtime.elapsed())?;
        // The semaphore is never closed.
        Ok(Turn(self.unknown.acquire().await.ok()))
    }

    /// Records a token as valid, after its creation or look-up. Returns whether it was not recorded before.
    pub(crate) fn learn_good(&self, sha256: &str) -> bool {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if good.len() >= GOOD_MAX && !good.contains(sha256) {
            // Removes an arbitrary entry; its token is looked up again at its next request.
            let other = good.iter().next().cloned();
            other.map(|other| good.remove(&other));
        }
        good.insert(sha256.to_owned())
    }

    /// Records the result of a look-up.
    pub(crate) fn looked_up(&self, from: Option<PeerAddress>, sha256: &str, is_good: bool) {
        if is_good {
            // The request was charged to the address before the token was known to be valid.
            if self.learn_good(sha256)
                && let Some(from) = from
            {
                self.addresses.give_back(&(from, Offered::Token));
            }
            return;
        }
        self.good.lock().unwrap_or_else(PoisonError::into_inner).remove(sha256);
        self.bad_tokens.count(from, sha256, self.runtime.elapsed());
    }

    /// Counts an enrollment by the digest of its token, which has a correct code, or refuses it. A repeated failing token does not count
    /// against its address as another machine.
    pub(crate) fn count_enrollment(&self, from: Option<PeerAddress>, sha256: &str) -> Result<(), TooOften> {
        let now = self.runtime.elapsed();
        self.bad_enrollments.look(from, sha256, now)?;
        let Some(from) = from.filter(|_| !self.bad_enrollments.knows(sha256)) else { return Ok(()) };
        self.enrollments.take(&from, now).map_err(|wait| TooOften { who: "this address enrolls", wait })
    }

    /// Records a failed enrollment. `was_one` means that the token was valid once; it is then not charged to the address.
    pub(crate) fn enrollment_failed(&self, from: Option<PeerAddress>, sha256: &str, was_one: bool) {
        self.bad_enrollments.count(from.filter(|_| !was_one), sha256, self.runtime.elapsed());
    }
}

/// Invalid tokens with a correct code: limits how often each may be tried, and how many new ones an address may send.
struct Failures {
    tokens: Pace<String>,
    addresses: Pace<PeerAddress>,
}

impl Failures {
    fn new() -> Self {
        Self { tokens: Pace::per_second(FAILURES), addresses: Pace::per_second(FAILURES) }
    }

    /// Returns whether the token with this digest is recorded as invalid.
    fn knows(&self, sha256: &str) -> bool {
        self.tokens.knows(sha256)
    }

    /// Refuses a token that was invalid too often, and a token not yet recorded from an address that sent too many invalid ones.
    fn look(&self, from: Option<PeerAddress>, sha256: &str, now: Duration) -> Result<(), TooOften> {
        if self.knows(sha256) {
            return self.tokens.look(sha256, now).map_err(|wait| TooOften { who: "this token is refused", wait });
        }
        let looked = from.map_or(Ok(()), |from| self.addresses.look(&from, now));
        looked.map_err(|wait| TooOften { who: "this address offers credentials that are none", wait })
    }

    /// Counts an invalid token: each time against itself, the first time against its address.
    fn count(&self, from: Option<PeerAddress>, sha256: &str, now: Duration) {
        // An exhausted rate needs no error here: it refuses the next look-up.
        if let Some(from) = from.filter(|_| !self.knows(sha256)) {
            let _ = self.addresses.take(&from, now);
        }
        let _ = self.tokens.take(&sha256.to_owned(), now);
    }
}

/// Permit of a look-up, held until dropped.
pub(crate) struct Turn<'a>(#[expect(dead_code, reason = "it is held, and nothing else")] Option<SemaphorePermit<'a>>);

/// The exceeded limit, and the time to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooOften {
    who: &'static str,
    wait: Duration,
}

impl From<TooOften> for ApiProblem {
    fn from(refused: TooOften) -> Self {
        let seconds = refused.wait.as_secs() + 1;
        let problem = Self::new(Code::RateLimited, format!("{} too often", refused.who));
        problem.then(format!("try again after {seconds} s")).after(seconds)
    }
}

/// Counts a request against its address, unless a token will be charged for it.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let digest = auth::digest_of_token(request.headers(), state.engine.keys());
    let offered = state.limits.offered(request.uri().path(), digest.ok().as_deref());
    let counted = peer::sender(&request).zip(offered);
    match counted.map_or(Ok(()), |(from, offered)| state.limits.count_address(from, offered)) {
        Ok(()) => next.run(request).await,
        Err(refused) => ApiProblem::from(refused).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, future::BoxFuture};
    use gpuaas_model::{Role, Timestamp};
    use uuid::Uuid;

    use super::*;

    /// A clock that the test advances.
    #[derive(Default)]
    struct Stopped(Mutex<Duration>);

    impl Runtime for Stopped {
        fn spawn(&self, _: &'static str, _: BoxFuture<'static, ()>) {}

        fn elapsed(&self) -> Duration {
            *self.0.lock().unwrap()
        }

        fn sleep_until(&self, _: Timestamp) -> BoxFuture<'static, ()> {
            std::future::ready(()).boxed()
        }
    }

    fn address(last: u8) -> PeerAddress {
        PeerAddress::of([192, 0, 2, last].into())
    }

    /// Returns the result of a look-up that does not wait for a permit.
    fn looked(limits: &Limits, from: Option<PeerAddress>, sha256: &str) -> Result<(), TooOften> {
        limits.turn_to_look_up(from, sha256).now_or_never().expect("it has its turn").map(drop)
    }

    #[test]
    fn whoever_guesses_tokens_is_not_looked_up_for_a_while_and_the_good_ones_of_its_address_are() {
        let clock = Arc::new(Stopped::default());
        let limits = Limits::new(Paces::USUAL, clock.clone());
        let (guesser, other) = (Some(address(1)), Some(address(2)));
        limits.looked_up(guesser, "good", true);
        let guessed = (0..1_000).take_while(|number| {
            limits.looked_up(guesser, &number.to_string(), false);
            looked(&limits, guesser, "guess").is_ok()
        });
        assert_eq!(guessed.count(), 4 * FAILURES.get() as usize - 1);
        assert!(looked(&limits, guesser, "good").is_ok() && looked(&limits, other, "guess").is_ok());
        *clock.0.lock().unwrap() += Duration::from_secs(1);
        assert!(looked(&limits, guesser, "guess").is_ok());
    }

    #[test]
    fn token_that_has_ended_is_held_to_its_own_pace_and_holds_up_no_other_of_its_address() {
        let clock = Arc::new(Stopped::default());
        let limits = Limits::new(Paces::USUAL, clock.clone());
        let here = Some(address(1));
        limits.looked_up(here, "revoked", true);
        let tried = (0..1_000).take_while(|_| {
            limits.looked_up(here, "revoked", false);
            looked(&limits, here, "revoked").is_ok()
        });
        assert_eq!(tried.count(), 4 * FAILURES.get() as usize - 1);
        (0..1_000).for_each(|_| limits.looked_up(here, "revoked", false));
        assert!(looked(&limits, here, "fresh").is_ok() && limits.count_enrollment(here, "fresh").is_ok());
        (0..1_000).for_each(|_| limits.enrollment_failed(here, "used", true));
        (0..1_000).for_each(|_| limits.enrollment_failed(here, "foreign", false));
        assert!(limits.count_enrollment(here, "used").is_err() && limits.count_enrollment(here, "foreign").is_err());
        assert!(limits.count_enrollment(here, "fresh").is_ok());
        *clock.0.lock().unwrap() += Duration::from_secs(1);
        assert!(looked(&limits, here, "revoked").is_ok() && limits.count_enrollment(here, "used").is_ok());
    }

    #[test]
    fn whoever_guesses_tokens_holds_up_no_machine_that_enrolls_from_there_and_whoever_guesses_enrollments_itself_alone()
    {
        let limits = Limits::new(Paces::USUAL, Arc::new(Stopped::default()));
        let here = Some(address(1));
        (0..1_000).for_each(|number| limits.looked_up(here, &number.to_string(), false));
        assert!(looked(&limits, here, "guess").is_err() && limits.count_enrollment(here, "fresh").is_ok());
        let there = Some(address(2));
        (0..1_000).for_each(|number| limits.enrollment_failed(there, &number.to_string(), false));
        assert!(limits.count_enrollment(there, "fresh").is_err() && looked(&limits, there, "guess").is_ok());
    }

    #[test]
    fn unknown_tokens_are_looked_up_in_turn_and_known_ones_at_once() {
        let limits = Limits::new(Paces::USUAL, Arc::new(Stopped::default()));
        limits.looked_up(None, "good", true);
        let turn = |sha256: &str| limits.turn_to_look_up(None, sha256).now_or_never().map(|turn| turn.unwrap());
        let mut held: Vec<_> = (0..UNKNOWN_AT_ONCE).map(|_| turn("unknown").expect("there is room")).collect();
        assert!(turn("unknown").is_none(), "it waits for its turn");
        assert!(turn("good").is_some());
        held.pop();
        assert!(turn("unknown").is_some());
    }

    #[test]
    fn the_first_request_of_a_good_token_costs_its_address_nothing_either() {
        let paces = Paces { per_address: NonZeroU32::MIN, ..Paces::USUAL };
        let limits = Limits::new(paces, Arc::new(Stopped::default()));
        (0..100_u32).for_each(|number| {
            limits.count_address(address(1), Offered::Token).expect("the one before was given back");
            limits.looked_up(Some(address(1)), &number.to_string(), true);
        });
        (0..4).for_each(|_| limits.count_address(address(1), Offered::Token).expect("within the burst"));
        limits.looked_up(Some(address(1)), "0", true);
        assert!(
            limits.count_address(address(1), Offered::Token).is_err(),
            "a known one gives nothing back: it was not counted"
        );
    }

    #[test]
    fn two_hundred_machines_enroll_at_once_and_a_loop_does_not() {
        let limits = Limits::new(Paces::USUAL, Arc::new(Stopped::default()));
        let enrolled =
            (0..1_000).filter(|number| limits.count_enrollment(Some(address(1)), &number.to_string()).is_ok());
        assert_eq!(enrolled.count(), 200);
        assert!(limits.count_enrollment(Some(address(2)), "another").is_ok());
    }

    #[test]
    fn requests_without_a_token_hold_up_none_that_has_one() {
        let limits = Limits::new(Paces::USUAL, Arc::new(Stopped::default()));
        while limits.count_address(address(1), Offered::Nothing).is_ok() {}
        assert!(limits.count_address(address(1), Offered::Token).is_ok());
        assert!(limits.count_address(address(1), Offered::Enrollment).is_ok());
    }

    #[test]
    fn a_token_that_was_just_made_is_looked_up_at_once_whatever_its_address_offered_and_memory_stays_bounded() {
        let limits = Limits::new(Paces::USUAL, Arc::new(Stopped::default()));
        let guesser = Some(address(1));
        (0..120).for_each(|number| limits.looked_up(guesser, &format!("guess {number}"), false));
        assert!(looked(&limits, guesser, "fresh").is_err(), "it cannot be told from a guess");
        limits.learn_good("fresh");
        assert!(looked(&limits, guesser, "fresh").is_ok());
        (0..2 * GOOD_MAX).for_each(|number| _ = limits.learn_good(&number.to_string()));
        assert_eq!(limits.good.lock().unwrap().len(), GOOD_MAX);
    }

    #[test]
    fn requests_of_an_address_are_classified_by_their_token() {
        let limits = Limits::new(Paces::USUAL, Arc::new(Stopped::default()));
        limits.looked_up(None, "good", true);
        limits.looked_up(None, "ended", false);
        assert_eq!(limits.offered("/api/v1/nodes", Some("good")), None);
        assert_eq!(limits.offered("/api/v1/nodes", Some("fresh")), Some(Offered::Token));
        assert_eq!(limits.offered("/api/v1/nodes", Some("ended")), Some(Offered::Nothing), "it would take from others");
        assert_eq!(limits.offered("/api/v1/nodes", None), Some(Offered::Nothing));
        for sha256 in [None, Some("good"), Some("fresh")] {
            assert_eq!(limits.offered("/api/v1/enroll", sha256), Some(Offered::Enrollment), "{sha256:?}");
        }
    }

    #[test]
    fn all_tokens_of_a_project_have_one_pace_and_each_its_own() {
        let limits = Limits::new(Paces::USUAL, Arc::new(Stopped::default()));
        let asked = |token: u128, project: Option<u128>| {
            let caller = Principal {
                token: TokenId::from_uuid(Uuid::from_u128(token)),
                name: "robot".to_owned(),
                role: Role::Viewer,
                project: project.map(|project| ProjectId::from_uuid(Uuid::from_u128(project))),
                service_account: None,
            };
            (0..6_000).filter(|_| limits.count_caller(&caller).is_ok()).count()
        };
        assert_eq!((1..=3).map(|token| asked(token, Some(1))).sum::<usize>(), 8_000, "three tokens of one project");
        assert_eq!((4..=6).map(|token| asked(token, None)).sum::<usize>(), 12_000, "the platform's have no project");
        assert_eq!(asked(7, Some(2)), 4_000, "another project has its own");
    }

    #[test]
    fn only_a_loopback_address_that_connected_itself_is_local() {
        let address = |text: &str| text.parse().unwrap();
        for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(PeerAddress::of(address(local)).is_local(), "{local}");
            assert!(!PeerAddress::named_by_proxy(address(local)).is_local(), "a proxy says {local}");
        }
        for other in ["192.0.2.1", "::2", "0.0.0.0"] {
            assert!(!PeerAddress::of(address(other)).is_local(), "{other}");
        }
    }
}
