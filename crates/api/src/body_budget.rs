//! Limits the memory of request bodies while they are read and used.
//!
//! Guarantees: the bodies of all unauthenticated callers hold at most [`UNKNOWN_BYTES_MAX`] together, except that every address may hold
//! one body; those of authenticated callers hold at most [`KNOWN_BYTES_MAX`]. No address and no project holds more than its share. Received
//! bytes count, announced ones do not.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use axum::http::Extensions;
use gpuaas_model::{Code, PeerSite, Principal, ProjectId, TokenId};

use crate::{peer::PeerAddress, problem::ApiProblem};

/// Longest body of an unauthenticated caller, in bytes. An enrollment takes about 2 KiB.
pub(crate) const UNKNOWN_BODY_BYTES_MAX: usize = 16 * 1_024;
/// Longest body of an authenticated caller, in bytes.
pub(crate) const KNOWN_BODY_BYTES_MAX: usize = 1_024 * 1_024;
/// Longest body of a controller, in bytes: a report on 50 members with the longest texts takes about 100 KiB.
pub(crate) const CONTROLLER_BODY_BYTES_MAX: usize = 256 * 1_024;
/// Bytes of all bodies of unauthenticated callers, enough for two thousand concurrent enrollments. One address may hold a quarter. Beyond
/// the limit each address may still hold one body: at most 64 MiB over all possible connections.
const UNKNOWN_BYTES_MAX: usize = 8 * 1_024 * 1_024;
/// Bytes of all bodies of authenticated callers. One project, or one platform token, may hold a quarter.
const KNOWN_BYTES_MAX: usize = 64 * 1_024 * 1_024;
/// Seconds after which a client may retry a refused body: bodies are held for a short time.
const RETRY_AFTER_SECONDS: u64 = 1;

/// The budgets for unauthenticated and for authenticated callers.
#[derive(Clone)]
pub(crate) struct BodyBudgets {
    unknown: Arc<Budget>,
    known: Arc<Budget>,
}

/// Owner of the share against which a body counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Holder {
    /// An unauthenticated caller at this address, or at an address that the listener did not report.
    Address(Option<PeerSite>),
    Project(ProjectId),
    /// A platform token.
    Token(TokenId),
}

struct Budget {
    callers: &'static str,
    total_max: usize,
    share_max: usize,
    /// Bytes that every holder may hold even when the budget is exhausted.
    floor: usize,
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    total: usize,
    shares: HashMap<Holder, usize>,
}

impl BodyBudgets {
    pub(crate) fn new() -> Self {
        let budget = |callers, all_max, floor| {
            Arc::new(Budget { callers, total_max: all_max, share_max: all_max / 4, floor, usage: Mutex::default() })
        };
        Self {
            unknown: budget("callers without a token", UNKNOWN_BYTES_MAX, UNKNOWN_BODY_BYTES_MAX),
            known: budget("callers with a token", KNOWN_BYTES_MAX, 0),
        }
    }

    /// Returns an empty reservation for the body of a request. A caller counts as authenticated once its token was looked up.
    pub(crate) fn reserve(&self, of: &Extensions) -> Reservation {
        let known = of.get::<Principal>();
        let holder = known.map(|caller| caller.project.map_or(Holder::Token(caller.token), Holder::Project));
        let (budget, bytes_max) = match known {
            Some(caller) if caller.role.is_of_workload() => (&self.known, CONTROLLER_BODY_BYTES_MAX),
            Some(_) => (&self.known, KNOWN_BODY_BYTES_MAX),
            None => (&self.unknown, UNKNOWN_BODY_BYTES_MAX),
        };
        let holder = holder.unwrap_or_else(|| Holder::Address(of.get::<PeerAddress>().map(|from| from.site())));
        Reservation { budget: budget.clone(), holder, bytes_max, taken: 0 }
    }
}

/// The share of a budget that one body holds; released on drop.
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    holder: Holder,
    bytes_max: usize,
    taken: usize,
}

impl Reservation {
    /// Returns the longest length of the body, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Reserves more bytes, or refuses the body.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), ApiProblem> {
        if self.taken + bytes > self.bytes_max {
            return Err(self.too_long());
        }
        let mut held = self.budget.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let of_holder = held.shares.get(&self.holder).copied().unwrap_or_default() + bytes;
        // Every address may always hold one body; otherwise a few could block all others. The number of connections bounds the total.
        let is_first = of_holder <= self.budget.floor;
        if (held.total + bytes > self.budget.total_max && !is_first) || of_holder > self.budget.share_max {
            let detail = format!("request bodies of {} use their whole memory budget", self.budget.callers);
            let refused = ApiProblem::new(Code::RateLimited, detail);
            return Err(refused.then("send it again in a moment").after(RETRY_AFTER_SECONDS));
        }
        held.total += bytes;
        held.shares.insert(self.holder, of_holder);
        self.taken += bytes;
        Ok(())
    }

    /// Returns the refusal of a body that is over the length limit.
    pub(crate) fn too_long(&self) -> ApiProblem {
        ApiProblem::new(Code::BodyTooLarge, format!("the body is longer than {} bytes", self.bytes_max))
            .then("send a shorter body")
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut held = self.budget.usage.lock().unwrap_or_else(PoisonError::into_inner);
        held.total -= self.taken;
        if let Some(share) = held.shares.get_mut(&self.holder) {
            *share -= self.taken;
            if *share == 0 {
                held.shares.remove(&self.holder);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use gpuaas_model::{Coded, Role};
    use uuid::Uuid;

    use super::*;

    fn unauthenticated(last: u8) -> Extensions {
        let mut of = Extensions::new();
        of.insert(PeerAddress::of([192, 0, 2, last].into()));
        of
    }

    fn authenticated(token: u128, project: Option<u128>) -> Extensions {
        let mut of = unauthenticated(1);
        of.insert(Principal {
            token: TokenId::from_uuid(Uuid::from_u128(token)),
            name: "robot".to_owned(),
            role: Role::Viewer,
            project: project.map(|id| ProjectId::from_uuid(Uuid::from_u128(id))),
            service_account: None,
            workload: None,
        });
        of
    }

    /// Reserves bodies of full length until the budget refuses one.
    fn fill(budgets: &BodyBudgets, of: &Extensions) -> Vec<Reservation> {
        let full = || {
            let mut reservation = budgets.reserve(of);
            reservation.add(reservation.bytes_max()).ok().map(|()| reservation)
        };
        std::iter::from_fn(full).collect()
    }

    #[test]
    fn unauthenticated_addresses_share_one_budget_with_a_limit_for_each() {
        let budgets = BodyBudgets::new();
        let first = fill(&budgets, &unauthenticated(1));
        assert_eq!(first.len(), (UNKNOWN_BYTES_MAX / 4) / UNKNOWN_BODY_BYTES_MAX);
        let others: Vec<_> = (2..=9).flat_map(|last| fill(&budgets, &unauthenticated(last))).collect();
        let beyond = 5;
        assert_eq!(
            first.len() + others.len(),
            UNKNOWN_BYTES_MAX / UNKNOWN_BODY_BYTES_MAX + beyond,
            "one more body per address"
        );
        let mut newcomer = budgets.reserve(&unauthenticated(10));
        newcomer.add(UNKNOWN_BODY_BYTES_MAX).expect("every address may hold one body");
        let refused = budgets.reserve(&unauthenticated(10)).add(1).expect_err("the budget is exhausted");
        assert_eq!(refused.cause().code(), Code::RateLimited);
        drop(newcomer);
        assert!(budgets.reserve(&authenticated(1, None)).add(KNOWN_BODY_BYTES_MAX).is_ok(), "it has its own budget");
        drop((first, others));
        assert!(budgets.unknown.usage.lock().unwrap().shares.is_empty(), "addresses without a body are dropped");
        assert_eq!(fill(&budgets, &unauthenticated(10)).len(), (UNKNOWN_BYTES_MAX / 4) / UNKNOWN_BODY_BYTES_MAX);
    }

    #[test]
    fn tokens_of_a_project_have_one_share() {
        let budgets = BodyBudgets::new();
        let held: Vec<_> = (1..100).flat_map(|token| fill(&budgets, &authenticated(token, Some(7)))).collect();
        assert_eq!(held.len(), (KNOWN_BYTES_MAX / 4) / KNOWN_BODY_BYTES_MAX);
        assert!(
            budgets.reserve(&authenticated(1, Some(8))).add(KNOWN_BODY_BYTES_MAX).is_ok(),
            "another project has its own"
        );
    }

    #[test]
    fn body_over_the_length_limit_is_refused() {
        let mut reservation = BodyBudgets::new().reserve(&unauthenticated(1));
        assert!(reservation.add(UNKNOWN_BODY_BYTES_MAX).is_ok());
        assert_eq!(reservation.add(1).expect_err("one byte too many").cause().code(), Code::BodyTooLarge);
        let mut controller = authenticated(1, Some(1));
        if let Some(caller) = controller.get_mut::<Principal>() {
            caller.role = Role::AppController;
        }
        let mut report = BodyBudgets::new().reserve(&controller);
        assert!(report.add(CONTROLLER_BODY_BYTES_MAX).is_ok());
        assert_eq!(report.add(1).expect_err("one byte too many").cause().code(), Code::BodyTooLarge);
    }
}
