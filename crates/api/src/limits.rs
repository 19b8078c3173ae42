//! How often one may ask: per address before anything is looked up, per token after. Bounded memory, whoever knocks.
//!
//! Whoever offers tokens that are none, or enrollment tokens, is held to a pace of its own; a token that was good a moment ago is looked up all
//! the same, so that nobody can lock out those who share an address with him.
//!
//! Deliberately absent: health and metrics, which probes ask for, and nodes' own connections, which have limits of their own.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv6Addr},
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
use gpuaas_model::{Code, TokenId};

use crate::{pace::Pace, problem::ApiProblem, state::ApiState};

/// Tokens that are no tokens, a second and address; also enrollment tokens.
const FAILURES_PER_ADDRESS: NonZeroU32 = NonZeroU32::new(10).expect("it is not zero");
/// Enrollments a second and address: two hundred machines behind one address may come at once.
const ENROLLMENTS_PER_ADDRESS: NonZeroU32 = NonZeroU32::new(50).expect("it is not zero");
/// Digests of tokens that were good, kept at once.
const GOOD_MAX: usize = 10_000;
/// What of an IPv6 address tells its holder: a network of this many bits is the least that anybody is given.
const IPV6_NETWORK_BITS: u32 = 64;

/// Whose request it is, as the listener saw it: an address, or the network that somebody was given whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerAddress(IpAddr);

impl PeerAddress {
    /// The holder of an address.
    pub fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << (128 - IPV6_NETWORK_BITS))).into()
            }
        })
    }
}

/// How often one may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paces {
    /// Requests a second by one token.
    pub per_token: NonZeroU32,
    /// Requests a second from one address.
    pub per_address: NonZeroU32,
}

impl Paces {
    /// A script in a hurry stays below both; a loop that went wild does not.
    pub const USUAL: Self = Self {
        per_token: NonZeroU32::new(1_000).expect("it is not zero"),
        per_address: NonZeroU32::new(2_000).expect("it is not zero"),
    };
}

/// The paces as they are kept.
pub(crate) struct Limits {
    tokens: Pace<TokenId>,
    addresses: Pace<PeerAddress>,
    failures: Pace<PeerAddress>,
    enrollments: Pace<PeerAddress>,
    good: Mutex<HashSet<String>>,
    runtime: Arc<dyn Runtime>,
}

impl Limits {
    pub(crate) fn new(paces: Paces, runtime: Arc<dyn Runtime>) -> Self {
        Self {
            tokens: Pace::per_second(paces.per_token),
            addresses: Pace::per_second(paces.per_address),
            failures: Pace::per_second(FAILURES_PER_ADDRESS),
            enrollments: Pace::per_second(ENROLLMENTS_PER_ADDRESS),
            good: Mutex::default(),
            runtime,
        }
    }

    /// Counts a request of a token.
    pub(crate) fn count_token(&self, token: TokenId) -> Result<(), TooOften> {
        self.tokens.take(&token, self.runtime.elapsed()).map_err(|wait| TooOften { who: "this token asks", wait })
    }

    /// Counts a request of an address.
    fn count_address(&self, from: PeerAddress) -> Result<(), TooOften> {
        let taken = self.addresses.take(&from, self.runtime.elapsed());
        taken.map_err(|wait| TooOften { who: "this address asks", wait })
    }

    /// Refuses to look a token up for an address that offered too many that were none.
    pub(crate) fn may_look_up(&self, from: Option<PeerAddress>, sha256: &str) -> Result<(), TooOften> {
        let was_good = || self.good.lock().unwrap_or_else(PoisonError::into_inner).contains(sha256);
        let looked = from.map_or(Ok(()), |from| self.failures.look(&from, self.runtime.elapsed()));
        looked.or_else(|wait| if was_good() { Ok(()) } else { Err(TooOften { who: GUESSES, wait }) })
    }

    /// Learns what became of a look-up.
    pub(crate) fn looked_up(&self, from: Option<PeerAddress>, sha256: &str, is_good: bool) {
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        if is_good {
            if good.len() >= GOOD_MAX {
                good.clear();
            }
            if !good.contains(sha256) {
                good.insert(sha256.to_owned());
            }
            return;
        }
        good.remove(sha256);
        drop(good);
        self.failed(from);
    }

    /// Counts an enrollment, or refuses it.
    pub(crate) fn count_enrollment(&self, from: Option<PeerAddress>) -> Result<(), TooOften> {
        let Some(from) = from else { return Ok(()) };
        let now = self.runtime.elapsed();
        self.failures.look(&from, now).map_err(|wait| TooOften { who: GUESSES, wait })?;
        self.enrollments.take(&from, now).map_err(|wait| TooOften { who: "this address enrolls", wait })
    }

    /// Counts a credential that was none.
    pub(crate) fn failed(&self, from: Option<PeerAddress>) {
        if let Some(from) = from {
            // Beyond its pace it is refused before the next look-up.
            let _ = self.failures.take(&from, self.runtime.elapsed());
        }
    }
}

const GUESSES: &str = "this address offers credentials that are none";

/// Who asked too often, and how long to wait.
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

/// Who sent a request, where the listener said it.
pub(crate) fn sender(request: &Request) -> Option<PeerAddress> {
    request.extensions().get().copied()
}

/// Counts a request of an address.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    match sender(&request).map_or(Ok(()), |from| state.limits.count_address(from)) {
        Ok(()) => next.run(request).await,
        Err(refused) => ApiProblem::from(refused).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, future::BoxFuture};
    use gpuaas_model::Timestamp;

    use super::*;

    /// A clock that moves when it is told to.
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

    #[test]
    fn whoever_guesses_tokens_is_not_looked_up_for_a_while_and_the_good_ones_of_its_address_are() {
        let clock = Arc::new(Stopped::default());
        let limits = Limits::new(Paces::USUAL, clock.clone());
        let (guesser, other) = (Some(address(1)), Some(address(2)));
        limits.looked_up(guesser, "good", true);
        let guessed = (0..1_000).take_while(|_| {
            limits.looked_up(guesser, "guess", false);
            limits.may_look_up(guesser, "guess").is_ok()
        });
        assert_eq!(guessed.count(), 4 * FAILURES_PER_ADDRESS.get() as usize - 1);
        assert!(limits.may_look_up(guesser, "good").is_ok() && limits.may_look_up(other, "guess").is_ok());
        assert!(limits.count_enrollment(guesser).is_err() && limits.count_enrollment(other).is_ok());
        limits.looked_up(guesser, "good", false);
        assert!(limits.may_look_up(guesser, "good").is_err(), "a token that was revoked is no longer good");
        *clock.0.lock().unwrap() += Duration::from_secs(1);
        assert!(limits.may_look_up(guesser, "guess").is_ok());
    }

    #[test]
    fn two_hundred_machines_enroll_at_once_and_a_loop_does_not() {
        let limits = Limits::new(Paces::USUAL, Arc::new(Stopped::default()));
        let enrolled = (0..1_000).filter(|_| limits.count_enrollment(Some(address(1))).is_ok()).count();
        assert_eq!(enrolled, 200);
        assert!(limits.count_enrollment(Some(address(2))).is_ok());
    }

    #[test]
    fn a_network_of_ipv6_has_one_holder_and_an_address_in_disguise_is_itself() {
        let of = |text: &str| PeerAddress::of(text.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    }
}
