use std::time::Duration;

use super::*;
use crate::{hold::Budget, object_name::ObjectName};

fn name(name: &str) -> ObjectName {
    ObjectName::new("web", name).unwrap()
}

fn pod(id: &str) -> Pod {
    Pod::evictable(name(id), id)
}

fn ending(id: &str) -> Pod {
    let mut ending = pod(id);
    ending.ends_by = Some("2026-07-01T10:00:00Z".parse().unwrap());
    ending
}

fn state(pods: &[&str], now: Instant) -> DrainState {
    let mut state = DrainState::default();
    state.update(pods.iter().map(|id| pod(id)).collect(), None, now);
    state
}

fn due(state: &DrainState, now: Instant) -> Vec<String> {
    state.due(now, 10).into_iter().map(|pod| pod.uid).collect()
}

fn budget(name_of: &str) -> Hold {
    Hold::Budget(Some(Budget { name: name(name_of), status: None }))
}

#[tokio::test(start_paused = true)]
async fn held_pods_are_due_again_after_their_pause_and_ending_ones_never() {
    let now = Instant::now();
    let mut state = state(&["a", "b", "c"], now);
    assert_eq!(due(&state, now), ["a", "b", "c"]);
    state.set_held("a", budget("api"), now + Duration::from_secs(2));
    state.set_ending("b", None);
    state.set_ended("c");
    assert!(due(&state, now).is_empty());
    assert_eq!(state.next_due(), Some(now + Duration::from_secs(2)));
    assert_eq!(due(&state, now + Duration::from_secs(2)), ["a"]);
    assert_eq!(state.describe(), "2 of 3 pods left; web/a is held by budget web/api; evicted and not yet ended: web/b");
}

#[tokio::test(start_paused = true)]
async fn delay_of_one_eviction_delays_all() {
    let now = Instant::now();
    let mut state = state(&["a", "b"], now);
    state.set_delayed("a", "the apiserver has too many requests".into(), now + Duration::from_secs(7));
    assert!(due(&state, now).is_empty());
    assert_eq!(state.next_due(), Some(now + Duration::from_secs(7)));
    assert_eq!(due(&state, now + Duration::from_secs(7)), ["b", "a"]);
}

#[tokio::test(start_paused = true)]
async fn new_list_adds_new_pods_drops_absent_ones_and_keeps_what_holds_the_others() {
    let now = Instant::now();
    let mut state = state(&["a", "b", "c"], now);
    state.set_held("a", budget("api"), now + Duration::from_secs(2));
    state.set_ending("b", None);
    // `b` shows no trace of its eviction, `c` has ended, `d` is new, and `e` was deleted by a person.
    state.update(vec![pod("a"), pod("b"), pod("d"), ending("e")], Some("KubeNode x is not ready".into()), now);
    assert_eq!(due(&state, now), ["b", "d"]);
    assert_eq!(state.ended(), 1);
    let text = state.describe();
    assert!(text.starts_with("4 of 5 pods left; web/a is held by budget web/api;"), "{text}");
    assert!(text.ends_with("web/e (grace period until 2026-07-01T10:00:00Z); KubeNode x is not ready"), "{text}");
    state.update(vec![], None, now);
    assert!(state.is_empty());
    assert_eq!(state.ended(), 5);
}

#[tokio::test(start_paused = true)]
async fn hold_without_names_does_not_replace_one_with_names() {
    let now = Instant::now();
    let mut state = state(&["a"], now);
    state.set_held("a", budget("api"), now);
    state.set_held("a", Hold::Budget(None), now);
    assert_eq!(state.remains(1).held.named[0].by, budget("api"));
    state.set_held("a", Hold::Refusal("no".into()), now);
    assert_eq!(state.remains(1).held.named[0].by, Hold::Refusal("no".into()));
    state.set_ending("a", None);
    state.set_held("a", budget("api"), now);
    assert!(state.remains(1).held.is_empty(), "an ending pod is not held");
}

#[tokio::test(start_paused = true)]
async fn trouble_is_described_until_the_next_list() {
    let now = Instant::now();
    let mut state = DrainState::default();
    assert!(!state.is_current() && !state.is_empty());
    state.set_trouble("refused".into());
    assert_eq!(state.describe(), "refused");
    state.update(vec![pod("a")], None, now);
    state.set_trouble("refused".into());
    assert!(!state.is_current());
    assert_eq!(state.describe(), "refused; 1 of 1 pods left");
    state.update(vec![pod("a")], None, now);
    assert!(state.is_current());
}
