//! The script of a whole life: everything that people do and that breaks, with its time, drawn before the seed starts. It is a list of parts,
//! so that a failing seed can be repeated with some of them.

use std::{collections::BTreeSet, time::Duration};

use gpuaas_test_support::Chance;

use crate::faults::Faults;

/// Requests of the first person; the script ends with the last of them.
const REQUESTS: usize = 14;
/// Longest pause between two requests of one person.
const PAUSE_MAX_MS: u64 = 90_000;
/// Pauses between two things that break.
const BREAKS_EVERY_MS: (u64, u64) = (20_000, 300_000);
/// Pauses between two deviations of a followed cluster and its nodes.
const DEVIATIONS_EVERY_MS: (u64, u64) = (20_000, 200_000);
/// Pauses between two reports of the workload's controller.
const REPORTS_EVERY_MS: (u64, u64) = (10_000, 150_000);
/// Time in which the last request is answered; then everything becomes calm.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Rate per mille at which a person first previews the plan, and later requests exactly this plan.
const PLANNED: u64 = 250;
/// The people, by index.
pub(crate) const PEOPLE: [&str; 2] = ["ada", "bob"];

/// Everything that happens in a whole life.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) faults: Faults,
    pub(crate) entries: Vec<ScriptEntry>,
    /// When everything becomes calm, after the start of the faults.
    pub(crate) calm_at: Duration,
    /// True if one person sends all requests in order, each after the previous operation has ended; times have no effect.
    pub(crate) is_in_order: bool,
}

/// An action with its time, counted from the start of the faults.
#[derive(Clone, Debug)]
pub(crate) struct ScriptEntry {
    pub(crate) at: Duration,
    pub(crate) action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    /// A person sends a request.
    Request { person: usize, kind: RequestKind, choice: Choice },
    /// The workload's controller reports one member, about the generation before if `is_stale`.
    Report { is_stale: bool, is_healthy: bool, member: u64 },
    /// A unit ends; if it is damaged, only a repair starts it again.
    EndUnit { node: usize, is_damaged: bool },
    /// A person deletes a KubeNode.
    DeleteKubeNode { node: usize },
    /// A budget permits no eviction for this long.
    BlockEvictions { seconds: u64 },
    /// A person edits the configuration on a node.
    EditConfig { node: usize },
    /// A person disables or masks the unit on a node.
    DisableUnit { node: usize, is_masked: bool },
    /// A KubeNode is not Ready for this long, although its kubelet runs.
    NotReady { node: usize, seconds: u64 },
    /// A person removes the labels of a KubeNode.
    RemoveLabels { node: usize },
    /// The operator takes a node back, if no member uses it, reimages its machine and gives it to the project again.
    ReplaceMachine { node: usize },
}

/// What a person asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Drain,
    Uncordon,
    Remove,
    Add,
    Replace,
    Stop,
    Start,
    Reconcile,
    Repair,
    Resume,
    Cancel,
    Decommission,
}

/// The details of a request. Numbers choose among what exists when it is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Choice {
    pub(crate) member: u64,
    pub(crate) allocation: u64,
    pub(crate) is_forced: bool,
    pub(crate) timeout_seconds: u64,
    pub(crate) scope: u64,
    /// How long before the request the person previewed the plan; `None` without a preview.
    pub(crate) planned_before: Option<Duration>,
}

impl Script {
    /// Returns a script with nothing but faults.
    pub(crate) fn of_faults(faults: Faults) -> Self {
        Self { faults, entries: Vec::new(), calm_at: Duration::ZERO, is_in_order: false }
    }

    /// Draws what people do and what breaks, in addition to the faults.
    pub(crate) fn draw(faults: Faults, chance: &mut Chance) -> Self {
        let mut entries = Vec::new();
        let mut at = Duration::ZERO;
        for _ in 0..REQUESTS {
            at += Duration::from_millis(chance.between(500, PAUSE_MAX_MS));
            entries.push(ScriptEntry { at, action: request(0, chance) });
        }
        let calm_at = at + ANSWERED_WITHIN;
        draw_until(&mut entries, calm_at, (500, PAUSE_MAX_MS), chance, |chance| Some(request(1, chance)));
        let nodes = faults.nodes;
        draw_until(&mut entries, calm_at, BREAKS_EVERY_MS, chance, |chance| breakage(nodes, chance));
        draw_until(&mut entries, calm_at, REPORTS_EVERY_MS, chance, |chance| {
            let (is_stale, is_healthy) = (chance.per_mille(300), chance.per_mille(700));
            Some(Action::Report { is_stale, is_healthy, member: chance.next() })
        });
        entries.sort_by_key(|entry| entry.at);
        Self { faults, entries, calm_at, is_in_order: false }
    }

    /// Lets the control planes follow the cluster, and draws how it and its nodes deviate.
    #[must_use]
    pub(crate) fn followed(mut self, chance: &mut Chance) -> Self {
        self.faults.follows_clusters = true;
        let nodes = self.faults.nodes;
        draw_until(&mut self.entries, self.calm_at, DEVIATIONS_EVERY_MS, chance, |chance| deviation(nodes, chance));
        self.entries.sort_by_key(|entry| entry.at);
        self
    }

    /// Describes every part, in the order of their numbers.
    pub(crate) fn parts(&self) -> Vec<String> {
        let mut parts = Vec::new();
        self.clone().retain(&mut |part: String| {
            parts.push(part);
            true
        });
        parts
    }

    /// Returns the script with only these parts.
    #[must_use]
    pub(crate) fn only(mut self, kept: &BTreeSet<usize>) -> Self {
        let mut numbers = 0..;
        self.retain(&mut |_: String| numbers.next().is_some_and(|number| kept.contains(&number)));
        self
    }

    /// Shows every part to `keep` and drops those for which it returns false.
    fn retain(&mut self, keep: &mut dyn FnMut(String) -> bool) {
        self.faults.retain(keep);
        self.entries.retain(|entry| keep(format!("after {:.3} s: {:?}", entry.at.as_secs_f64(), entry.action)));
    }
}

fn draw_until(
    entries: &mut Vec<ScriptEntry>,
    end: Duration,
    (from_ms, to_ms): (u64, u64),
    chance: &mut Chance,
    draw: impl Fn(&mut Chance) -> Option<Action>,
) {
    let mut at = Duration::from_millis(chance.between(from_ms, to_ms));
    while at < end {
        entries.extend(draw(chance).map(|action| ScriptEntry { at, action }));
        at += Duration::from_millis(chance.between(from_ms, to_ms));
    }
}

fn request(person: usize, chance: &mut Chance) -> Action {
    let kind = match chance.below(100) {
        0..10 => RequestKind::Drain,
        10..17 => RequestKind::Uncordon,
        17..27 => RequestKind::Remove,
        27..37 => RequestKind::Add,
        37..45 => RequestKind::Replace,
        45..52 => RequestKind::Stop,
        52..62 => RequestKind::Start,
        62..68 => RequestKind::Reconcile,
        68..80 => RequestKind::Repair,
        80..90 => RequestKind::Resume,
        90..98 => RequestKind::Cancel,
        _ => RequestKind::Decommission,
    };
    let planned_before = Duration::from_millis(chance.between(100, 120_000));
    let choice = Choice {
        member: chance.next(),
        allocation: chance.next(),
        is_forced: chance.per_mille(500),
        timeout_seconds: chance.between(20, 300),
        scope: chance.below(3),
        planned_before: chance.per_mille(PLANNED).then_some(planned_before),
    };
    Action::Request { person, kind, choice }
}

fn breakage(nodes: usize, chance: &mut Chance) -> Option<Action> {
    let node = usize::try_from(chance.below(nodes as u64)).ok()?;
    Some(match chance.below(13) {
        0..5 => Action::EndUnit { node, is_damaged: chance.per_mille(500) },
        5..7 => Action::DeleteKubeNode { node },
        7..10 => Action::BlockEvictions { seconds: chance.between(10, 1_200) },
        10 => Action::EditConfig { node },
        _ => Action::ReplaceMachine { node },
    })
}

fn deviation(nodes: usize, chance: &mut Chance) -> Option<Action> {
    let node = usize::try_from(chance.below(nodes as u64)).ok()?;
    Some(match chance.below(10) {
        0..2 => Action::EditConfig { node },
        2..4 => Action::DisableUnit { node, is_masked: chance.per_mille(500) },
        4..8 => Action::NotReady { node, seconds: chance.between(3, 120) },
        _ => Action::RemoveLabels { node },
    })
}

#[test]
fn kept_parts_are_those_with_the_given_numbers() {
    let mut chance = Chance::of_seed(17);
    let faults = Faults::of(&mut chance).of_life(4, &mut chance);
    let script = Script::draw(faults, &mut chance);
    let parts = script.parts();
    assert!(parts.len() > REQUESTS, "{parts:#?}");
    assert_eq!(script.clone().only(&(0..parts.len()).collect()).parts(), parts);
    let (first, last) = (0, parts.len() - 1);
    let kept = script.clone().only(&BTreeSet::from([first, last])).parts();
    assert_eq!(kept, [parts[first].clone(), parts[last].clone()]);
    assert!(script.only(&BTreeSet::new()).parts().is_empty());
}
