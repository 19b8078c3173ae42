//! How often one may ask: per address before anything is looked up, per token after. Bounded memory, whoever knocks.
//!
//! Deliberately absent: health and metrics, which probes ask for, and nodes' own connections, which have limits of their own.

use std::{
    hash::Hash,
    net::IpAddr,
    num::NonZeroU32,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use governor::{
    NotUntil, Quota, RateLimiter,
    clock::{Clock as _, DefaultClock, QuantaInstant},
    state::keyed::DashMapStateStore,
};
use gpuaas_model::{Code, TokenId};

use crate::{problem::ApiProblem, state::ApiState};

/// Addresses or tokens whose pace is remembered at once. What is beyond them shares one pace.
const KEYS_MAX: usize = 10_000;
/// Seconds of the pace that may be asked for at once.
const BURST_SECONDS: u32 = 4;

/// How often room is made, in requests that find none.
const LOOK_EVERY: u32 = 1_000;

/// Whose request it is, as the listener saw it.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub IpAddr);

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
    tokens: Keyed<TokenId>,
    addresses: Keyed<IpAddr>,
}

impl Limits {
    pub(crate) fn new(paces: Paces) -> Self {
        Self { tokens: Keyed::new(paces.per_token), addresses: Keyed::new(paces.per_address) }
    }

    /// Counts a request of a token, or gives its refusal.
    pub(crate) fn refuse_token(&self, token: TokenId) -> Option<Response> {
        self.tokens.check(&token).err().map(|wait| refused("this token", wait))
    }
}

/// A pace per key.
struct Keyed<K: Hash + Eq + Clone> {
    each: RateLimiter<K, DashMapStateStore<K>, DefaultClock>,
    rest: governor::DefaultDirectRateLimiter,
    /// Requests that came while there was no room.
    beyond: AtomicU32,
}

impl<K: Hash + Eq + Clone> Keyed<K> {
    fn new(pace: NonZeroU32) -> Self {
        let quota =
            Quota::per_second(pace).allow_burst(pace.saturating_mul(NonZeroU32::MIN.saturating_add(BURST_SECONDS - 1)));
        Self { each: RateLimiter::dashmap(quota), rest: RateLimiter::direct(quota), beyond: AtomicU32::new(0) }
    }

    fn check(&self, key: &K) -> Result<(), Duration> {
        let wait = |not_until: NotUntil<QuantaInstant>| not_until.wait_time_from(DefaultClock::default().now());
        if self.each.len() >= KEYS_MAX {
            // Those that have rested for a whole burst are as good as new. To look at all of them for every request would be a gift.
            if self.beyond.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
                self.each.retain_recent();
            }
            return self.rest.check().map_err(wait);
        }
        self.each.check_key(key).map_err(wait)
    }
}

/// Counts a request of an address.
pub(crate) async fn middleware(State(state): State<ApiState>, request: Request, next: Next) -> Response {
    let address = request.extensions().get::<PeerAddress>().map(|address| address.0);
    match address.map(|address| state.limits.addresses.check(&address)) {
        Some(Err(wait)) => refused("this address", wait),
        Some(Ok(())) | None => next.run(request).await,
    }
}

fn refused(who: &str, wait: Duration) -> Response {
    let seconds = wait.as_secs() + 1;
    let mut response = ApiProblem::new(Code::RateLimited, format!("{who} asks too often"))
        .then(format!("try again after {seconds} s"))
        .into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_held_to_its_pace_and_others_are_not() {
        let keyed: Keyed<u64> = Keyed::new(NonZeroU32::MIN);
        assert!((0..BURST_SECONDS).all(|_| keyed.check(&1).is_ok()));
        assert!(keyed.check(&1).is_err_and(|wait| wait <= Duration::from_secs(1)));
        assert!(keyed.check(&2).is_ok());
    }

    #[test]
    fn keys_without_number_share_one_pace_and_take_no_memory() {
        let keyed: Keyed<u64> = Keyed::new(NonZeroU32::MIN);
        let refused = (0..3 * KEYS_MAX as u64).filter(|key| keyed.check(key).is_err()).count();
        assert!(keyed.each.len() <= KEYS_MAX, "{}", keyed.each.len());
        assert!(refused > 0, "whoever is beyond shares one pace");
    }
}
