//! The platform's share of a bootstrap, per member from its first step to its last: without the time of the distribution and without the
//! transfer of the release, which depends on network and disk.

use anyhow::Context;
use gpuaas_api_types::{OperationDetail, Step};

use super::{Figure, WORKLOAD};
use crate::{node::Node, test::control_plane::ControlPlane};

const PLATFORM_S: f64 = 1.0;

/// Deploys one server and agents.
pub(super) fn measure(platform: &ControlPlane, server: &Node, agents: &[Node]) -> anyhow::Result<[Figure; 3]> {
    let mut words = vec!["workload", "deploy", "rke2", "--name", WORKLOAD, "--server", server.name().as_str()];
    words.extend(agents.iter().flat_map(|agent| ["--agent", agent.name().as_str()]));
    let detail = platform.run_operation(&words)?;
    let members = members(&detail);
    let (mut ours, mut moved) = (Vec::new(), Vec::new());
    for member in &members {
        let share = share(&detail.steps, member).with_context(|| format!("{member} has no steps"))?;
        ours.push(share.ours_ms as f64 / 1e3);
        moved.push(share.moving_ms as f64 / 1e3);
    }
    let span_ms = detail
        .steps
        .iter()
        .filter_map(|step| step.ended_at_ms)
        .max()
        .zip(detail.steps.iter().filter_map(|step| step.started_at_ms).min());
    let total_s = span_ms.map_or(f64::NAN, |(end, start)| (end - start) as f64 / 1e3);
    Ok([
        Figure::of("platform's own share of a bootstrap, per node", "s", PLATFORM_S, ours),
        Figure::of("fetching and unpacking the release, per node", "s", None, moved),
        Figure::of("1 server and 2 agents, in total", "s", None, vec![total_s]),
    ])
}

struct Share {
    ours_ms: i64,
    moving_ms: i64,
}

/// Member names from the prefixes of step keys, without duplicates.
fn members(detail: &OperationDetail) -> Vec<String> {
    let mut names: Vec<String> =
        detail.steps.iter().filter_map(|step| Some(step.key.split_once('/')?.0.to_owned())).collect();
    names.sort();
    names.dedup();
    names
}

/// What a step spends its time on.
#[derive(PartialEq)]
enum Kind {
    Distribution,
    Moving,
    Ours,
}

fn kind(step: &Step) -> Kind {
    match step.key.split_once('/').map_or(step.key.as_str(), |(_, what)| what) {
        "start" | "wait-ready" | "api_ready" => Kind::Distribution,
        "fetch" | "install" => Kind::Moving,
        _ => Kind::Ours,
    }
}

fn share(steps: &[Step], member: &str) -> Option<Share> {
    let is_its = |step: &&Step| step.key.split_once('/').is_some_and(|(of, _)| of == member);
    let span = |step: &Step| Some((step.started_at_ms?, step.ended_at_ms?));
    let its: Vec<(i64, i64)> = steps.iter().filter(is_its).filter_map(span).collect();
    let (from, to) = (its.iter().map(|span| span.0).min()?, its.iter().map(|span| span.1).max()?);
    // Waiting for the cluster's API belongs to no member, but the server waits for it.
    let not_ours = steps.iter().filter(|step| kind(step) != Kind::Ours && (is_its(step) || !step.key.contains('/')));
    let mut spans: Vec<(i64, i64)> = not_ours
        .filter_map(span)
        .map(|(start, end)| (start.max(from), end.min(to)))
        .filter(|(start, end)| start < end)
        .collect();
    spans.sort_unstable();
    let (mut covered, mut until) = (0, i64::MIN);
    for (start, end) in spans {
        covered += (end - start.max(until)).max(0);
        until = until.max(end);
    }
    let moving = steps.iter().filter(is_its).filter(|step| kind(step) == Kind::Moving).filter_map(span);
    Some(Share { ours_ms: to - from - covered, moving_ms: moving.map(|(start, end)| end - start).sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(key: &str, start: i64, end: i64) -> Step {
        Step {
            key: key.to_owned(),
            phase: String::new(),
            state: "succeeded".to_owned(),
            attempts: 1,
            task: None,
            detail: None,
            fault: None,
            started_at_ms: Some(start),
            ended_at_ms: Some(end),
        }
    }

    #[test]
    fn platform_share_excludes_distribution_and_release_transfer() {
        let steps = [
            step("placement", 0, 10),
            step("server-1/preflight", 10, 30),
            step("server-1/fetch", 35, 135),
            step("server-1/start", 140, 940),
            step("api_ready", 950, 1_050),
            step("server-1/wait-ready", 1_040, 1_100),
            step("agent-1/preflight", 1_110, 1_120),
        ];
        let share = share(&steps, "server-1").expect("the member has steps");
        // 1090 in total: 100 moving, 800 starting, 150 waiting.
        assert_eq!((share.ours_ms, share.moving_ms), (40, 100));
        assert!(super::share(&steps, "agent-2").is_none());
    }
}
