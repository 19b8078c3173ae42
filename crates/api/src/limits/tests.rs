use futures::{FutureExt, future::BoxFuture};
use gpuaas_model::{Role, ServiceAccountId, Timestamp};
use uuid::Uuid;

use super::*;

/// A clock that the test advances.
#[derive(Default)]
struct ManualClock(Mutex<Duration>);

impl Runtime for ManualClock {
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
fn look_up(limits: &Limits, from: Option<PeerAddress>, sha256: &str) -> Result<(), RateExceeded> {
    limits.lookup_permit(from, sha256).now_or_never().expect("a permit is free").map(drop)
}

#[test]
fn guessed_tokens_delay_no_valid_token_of_their_address() {
    let clock = Arc::new(ManualClock::default());
    let limits = Limits::new(Rates::DEFAULT, clock.clone());
    let (guesser, other) = (Some(address(1)), Some(address(2)));
    limits.record_lookup(guesser, "good", true);
    let guessed = (0..1_000).take_while(|number| {
        limits.record_lookup(guesser, &number.to_string(), false);
        look_up(&limits, guesser, "guess").is_ok()
    });
    assert_eq!(guessed.count(), 4 * FAILURES_PER_SECOND.get() as usize - 1);
    assert!(look_up(&limits, guesser, "good").is_ok() && look_up(&limits, other, "guess").is_ok());
    *clock.0.lock().unwrap() += Duration::from_secs(1);
    assert!(look_up(&limits, guesser, "guess").is_ok());
}

#[test]
fn expired_token_has_its_own_rate_and_delays_no_other() {
    let clock = Arc::new(ManualClock::default());
    let limits = Limits::new(Rates::DEFAULT, clock.clone());
    let here = Some(address(1));
    limits.record_lookup(here, "revoked", true);
    let tried = (0..1_000).take_while(|_| {
        limits.record_lookup(here, "revoked", false);
        look_up(&limits, here, "revoked").is_ok()
    });
    assert_eq!(tried.count(), 4 * FAILURES_PER_SECOND.get() as usize - 1);
    (0..1_000).for_each(|_| limits.record_lookup(here, "revoked", false));
    assert!(look_up(&limits, here, "fresh").is_ok() && limits.count_enrollment(here, "fresh").is_ok());
    (0..1_000).for_each(|_| limits.record_failed_enrollment(here, "used", true));
    (0..1_000).for_each(|_| limits.record_failed_enrollment(here, "foreign", false));
    assert!(limits.count_enrollment(here, "used").is_err() && limits.count_enrollment(here, "foreign").is_err());
    assert!(limits.count_enrollment(here, "fresh").is_ok());
    *clock.0.lock().unwrap() += Duration::from_secs(1);
    assert!(look_up(&limits, here, "revoked").is_ok() && limits.count_enrollment(here, "used").is_ok());
}

#[test]
fn guessed_tokens_delay_no_enrollment_and_guessed_enrollments_no_token() {
    let limits = Limits::new(Rates::DEFAULT, Arc::new(ManualClock::default()));
    let here = Some(address(1));
    (0..1_000).for_each(|number| limits.record_lookup(here, &number.to_string(), false));
    assert!(look_up(&limits, here, "guess").is_err() && limits.count_enrollment(here, "fresh").is_ok());
    let there = Some(address(2));
    (0..1_000).for_each(|number| limits.record_failed_enrollment(there, &number.to_string(), false));
    assert!(limits.count_enrollment(there, "fresh").is_err() && look_up(&limits, there, "guess").is_ok());
}

#[test]
fn unknown_tokens_wait_for_a_permit_and_valid_ones_do_not() {
    let limits = Limits::new(Rates::DEFAULT, Arc::new(ManualClock::default()));
    limits.record_lookup(None, "good", true);
    let permit = |sha256: &str| limits.lookup_permit(None, sha256).now_or_never().map(|permit| permit.unwrap());
    let mut permits: Vec<_> = (0..UNKNOWN_LOOKUPS_MAX).map(|_| permit("unknown").expect("a permit is free")).collect();
    assert!(permit("unknown").is_none(), "it waits for a permit");
    assert!(permit("good").is_some());
    permits.pop();
    assert!(permit("unknown").is_some());
}

#[test]
fn first_request_of_a_valid_token_is_not_charged_to_its_address() {
    let rates = Rates { per_address: NonZeroU32::MIN, ..Rates::DEFAULT };
    let limits = Limits::new(rates, Arc::new(ManualClock::default()));
    (0..100_u32).for_each(|number| {
        limits.count_address(address(1), CredentialClass::Token).expect("the previous one was refunded");
        limits.record_lookup(Some(address(1)), &number.to_string(), true);
    });
    (0..4).for_each(|_| limits.count_address(address(1), CredentialClass::Token).expect("within the burst"));
    limits.record_lookup(Some(address(1)), "0", true);
    assert!(
        limits.count_address(address(1), CredentialClass::Token).is_err(),
        "a recorded token gets no refund: it was not counted"
    );
}

#[test]
fn burst_of_two_hundred_enrollments_per_address_is_accepted() {
    let limits = Limits::new(Rates::DEFAULT, Arc::new(ManualClock::default()));
    let enrolled = (0..1_000).filter(|number| limits.count_enrollment(Some(address(1)), &number.to_string()).is_ok());
    assert_eq!(enrolled.count(), 200);
    assert!(limits.count_enrollment(Some(address(2)), "another").is_ok());
}

#[test]
fn requests_without_a_token_delay_none_with_a_token() {
    let limits = Limits::new(Rates::DEFAULT, Arc::new(ManualClock::default()));
    while limits.count_address(address(1), CredentialClass::Unauthenticated).is_ok() {}
    assert!(limits.count_address(address(1), CredentialClass::Token).is_ok());
    assert!(limits.count_address(address(1), CredentialClass::Enrollment).is_ok());
}

#[test]
fn new_token_is_not_delayed_by_guesses_and_memory_is_bounded() {
    let limits = Limits::new(Rates::DEFAULT, Arc::new(ManualClock::default()));
    let guesser = Some(address(1));
    (0..120).for_each(|number| limits.record_lookup(guesser, &format!("guess {number}"), false));
    assert!(look_up(&limits, guesser, "fresh").is_err(), "it cannot be distinguished from a guess");
    limits.record_valid("fresh");
    assert!(look_up(&limits, guesser, "fresh").is_ok());
    (0..2 * VALID_MAX).for_each(|number| _ = limits.record_valid(&number.to_string()));
    assert_eq!(limits.valid.lock().unwrap().len(), VALID_MAX);
}

#[test]
fn requests_of_an_address_are_classified_by_their_token() {
    let limits = Limits::new(Rates::DEFAULT, Arc::new(ManualClock::default()));
    limits.record_lookup(None, "good", true);
    limits.record_lookup(None, "ended", false);
    assert_eq!(limits.credential_class("/api/v1/nodes", Some("good")), None);
    assert_eq!(limits.credential_class("/api/v1/nodes", Some("fresh")), Some(CredentialClass::Token));
    assert_eq!(
        limits.credential_class("/api/v1/nodes", Some("ended")),
        Some(CredentialClass::Unauthenticated),
        "it is known as invalid"
    );
    assert_eq!(limits.credential_class("/api/v1/nodes", None), Some(CredentialClass::Unauthenticated));
    for sha256 in [None, Some("good"), Some("fresh")] {
        assert_eq!(limits.credential_class("/api/v1/enroll", sha256), Some(CredentialClass::Enrollment), "{sha256:?}");
    }
}

#[test]
fn tokens_have_rates_of_their_own_and_of_their_project() {
    let limits = Limits::new(Rates::DEFAULT, Arc::new(ManualClock::default()));
    let accepted = |token: u128, project: Option<u128>| {
        let caller = Principal {
            token: TokenId::from_uuid(Uuid::from_u128(token)),
            name: "robot".to_owned(),
            role: Role::Viewer,
            project: project.map(|project| ProjectId::from_uuid(Uuid::from_u128(project))),
            service_account: None,
            workload: None,
        };
        (0..6_000).filter(|_| limits.count_caller(&caller).is_ok()).count()
    };
    assert_eq!((1..=3).map(|token| accepted(token, Some(1))).sum::<usize>(), 8_000, "three tokens of one project");
    assert_eq!((4..=6).map(|token| accepted(token, None)).sum::<usize>(), 12_000, "platform tokens have no project");
    assert_eq!(accepted(7, Some(2)), 4_000, "another project has its own rate");
}

#[test]
fn controller_has_one_rate_over_all_of_its_tokens() {
    let limits = Limits::new(Rates::DEFAULT, Arc::new(ManualClock::default()));
    let accepted = |token: u128, account: u128, role: Role| {
        let caller = Principal {
            token: TokenId::from_uuid(Uuid::from_u128(token)),
            name: "service-account/watcher".to_owned(),
            role,
            project: None,
            service_account: Some(ServiceAccountId::from_uuid(Uuid::from_u128(account))),
            workload: None,
        };
        (0..1_000).filter(|_| limits.count_caller(&caller).is_ok()).count()
    };
    assert_eq!((1..=3).map(|token| accepted(token, 1, Role::AppController)).sum::<usize>(), 80, "three of its tokens");
    assert_eq!(accepted(4, 2, Role::AppController), 80, "another controller has its own rate");
    assert_eq!(accepted(5, 3, Role::Viewer), 1_000, "other service accounts have none");
}

#[test]
fn only_a_direct_loopback_address_is_local() {
    let address = |text: &str| text.parse().unwrap();
    for local in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert!(PeerAddress::of(address(local)).is_local(), "{local}");
        assert!(!PeerAddress::from_proxy(address(local)).is_local(), "a proxy reported {local}");
    }
    for other in ["192.0.2.1", "::2", "0.0.0.0"] {
        assert!(!PeerAddress::of(address(other)).is_local(), "{other}");
    }
}

#[test]
fn token_signs_in_thirty_times_at_once_and_then_every_ten_seconds() {
    let clock = Arc::new(ManualClock::default());
    let limits = Limits::new(Rates::DEFAULT, clock.clone());
    let [one, other] = [1, 2].map(|number| TokenId::from_uuid(Uuid::from_u128(number)));
    let count = || (0..100).take_while(|_| limits.count_sign_in(one).is_ok()).count();
    assert_eq!(count(), 30);
    assert!(limits.count_sign_in(other).is_ok(), "another token has its own rate");
    *clock.0.lock().unwrap() += Duration::from_secs(10);
    assert_eq!(count(), 1);
}
