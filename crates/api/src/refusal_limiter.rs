//! Bounds the audit records of refused requests: refusals over the limit share one summary record.
//!
//! Guarantees: no token and no address adds audit records faster than its rate, plus one summary every
//! [`SUMMARY_AFTER`](crate::refusals::SUMMARY_AFTER) for each of at most [`SUMMARIES_MAX`] tokens. Every omitted refusal appears in a
//! summary: at the latest when the process stops. Only a killed process loses the pending ones.

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};

use gpuaas_engine::port::Runtime;
use gpuaas_model::{ActorType, AuditAction, AuditResult, Code, OwnActor, Principal, ProjectId, RateLimiter, TokenId};
use gpuaas_store::{ActorToken, NewAudit};
use serde_json::json;

use crate::peer::PeerAddress;

/// Refusals per second and token that get their own record; bursts may have four times as many.
const PER_TOKEN: NonZeroU32 = NonZeroU32::new(5).expect("it is not zero");
/// The same limit per address, over all of its tokens.
const PER_ADDRESS: NonZeroU32 = NonZeroU32::new(20).expect("it is not zero");
/// Tokens whose refusals are counted separately at one time; all others share one summary.
const SUMMARIES_MAX: usize = 100;

/// Decides which refusals get their own record, and counts the others.
pub(crate) struct RefusalLimiter {
    tokens: RateLimiter<TokenId>,
    addresses: RateLimiter<PeerAddress>,
    omitted: Mutex<BTreeMap<Option<TokenId>, OmittedRefusals>>,
    runtime: Arc<dyn Runtime>,
}

/// Counted refusals of one token, or of several.
#[derive(Debug, Default, PartialEq, Eq)]
struct OmittedRefusals {
    actor: String,
    by: Option<ActorToken>,
    project: Option<ProjectId>,
    counts: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
}

impl RefusalLimiter {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Self {
        let (tokens, addresses) = (RateLimiter::per_second(PER_TOKEN), RateLimiter::per_second(PER_ADDRESS));
        Self { tokens, addresses, omitted: Mutex::default(), runtime }
    }

    /// Returns whether a refusal gets its own record.
    pub(crate) fn gets_record(&self, token: TokenId, from: Option<PeerAddress>) -> bool {
        let now = self.runtime.elapsed();
        self.tokens.take(&token, now).is_ok() && from.is_none_or(|from| self.addresses.take(&from, now).is_ok())
    }

    /// Counts a refusal that gets no record of its own. Returns true for the first one: the caller schedules a summary.
    pub(crate) fn count_omitted(&self, principal: &Principal, action: AuditAction, code: Code) -> bool {
        let mut gathered = self.omitted.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Some(principal.token);
        let key = if gathered.contains_key(&own) || gathered.len() < SUMMARIES_MAX { own } else { None };
        let is_first = !gathered.contains_key(&key);
        let omitted_refusals = gathered.entry(key).or_insert_with(|| match key {
            Some(_) => OmittedRefusals {
                actor: principal.name.clone(),
                by: Some(principal.into()),
                project: principal.project,
                counts: BTreeMap::new(),
            },
            None => OmittedRefusals { actor: OwnActor::Several.to_string(), ..OmittedRefusals::default() },
        });
        *omitted_refusals.counts.entry(action.as_str()).or_default().entry(code.as_str()).or_default() += 1;
        is_first
    }

    /// Takes the summary of this token's refusals and the summary that several tokens share.
    pub(crate) fn summaries(&self, token: TokenId) -> Vec<NewAudit> {
        let mut gathered = self.omitted.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = [gathered.remove(&Some(token)), gathered.remove(&None)];
        taken.into_iter().flatten().map(OmittedRefusals::record).collect()
    }

    /// Takes all pending summaries.
    pub(crate) fn all_summaries(&self) -> Vec<NewAudit> {
        let gathered = std::mem::take(&mut *self.omitted.lock().unwrap_or_else(PoisonError::into_inner));
        gathered.into_values().map(OmittedRefusals::record).collect()
    }
}

impl OmittedRefusals {
    fn record(self) -> NewAudit {
        let count: u64 = self.counts.values().flat_map(BTreeMap::values).sum();
        NewAudit {
            actor: self.actor,
            actor_type: ActorType::Principal,
            by: self.by,
            action: AuditAction::RequestsRefuse,
            target: "request".to_owned(),
            project: self.project,
            workload: None,
            result: AuditResult::Refused,
            correlation: None,
            metadata: json!({ "count": count, "codes": self.counts }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpuaas_model::{Role, Timestamp};
    use uuid::Uuid;

    use super::*;

    #[derive(Default)]
    struct ManualClock(Mutex<Duration>);

    impl Runtime for ManualClock {
        fn spawn(&self, _: &'static str, _: futures::future::BoxFuture<'static, ()>) {}

        fn elapsed(&self) -> Duration {
            *self.0.lock().unwrap()
        }

        fn sleep_until(&self, _: Timestamp) -> futures::future::BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    fn principal(number: u128) -> Principal {
        let token = TokenId::from_uuid(Uuid::from_u128(number));
        let (project, service_account, workload) = (None, None, None);
        Principal { token, name: format!("p{number}"), role: Role::Viewer, project, service_account, workload }
    }

    #[test]
    fn refusals_over_the_rate_share_one_summary() {
        let clock = Arc::new(ManualClock::default());
        let flood = RefusalLimiter::new(clock.clone());
        let (ada, bob) = (principal(1), principal(2));
        assert_eq!((0..1_000).filter(|_| flood.gets_record(ada.token, None)).count(), 20);
        assert!(flood.gets_record(bob.token, None), "another token has its own rate");
        let is_first =
            (0..7).map(|_| flood.count_omitted(&ada, AuditAction::NodeReset, Code::Forbidden)).collect::<Vec<_>>();
        assert_eq!(is_first, [true, false, false, false, false, false, false], "one summary for all of them");
        flood.count_omitted(&ada, AuditAction::TokenCreate, Code::FieldInvalid);
        let records = flood.summaries(ada.token);
        assert_eq!((records.len(), records[0].actor.as_str(), records[0].result), (1, "p1", AuditResult::Refused));
        let codes = json!({ "node.reset": { "forbidden": 7 }, "token.create": { "field_invalid": 1 } });
        assert_eq!(records[0].metadata, json!({ "count": 8, "codes": codes }));
        assert_eq!(flood.summaries(ada.token), []);
        *clock.0.lock().unwrap() += Duration::from_secs(1);
        assert!(flood.gets_record(ada.token, None));
    }

    #[test]
    fn address_with_many_tokens_is_limited_and_many_tokens_share_a_summary() {
        let flood = RefusalLimiter::new(Arc::new(ManualClock::default()));
        let here = Some(PeerAddress::of([192, 0, 2, 1].into()));
        let recorded = (0..1_000).filter(|number| flood.gets_record(principal(*number).token, here)).count();
        assert_eq!(recorded, 80);
        let due = (0..1_000)
            .filter(|number| flood.count_omitted(&principal(*number), AuditAction::NodeReset, Code::Forbidden));
        assert_eq!(due.count(), SUMMARIES_MAX + 1);
        let records = flood.summaries(principal(0).token);
        assert_eq!(records.iter().map(|record| record.actor.as_str()).collect::<Vec<_>>(), ["p0", "several"]);
        assert_eq!(records[1].metadata["count"], 900);
        assert_eq!([records[0].by, records[1].by], [Some((&principal(0)).into()), None]);
    }
}
