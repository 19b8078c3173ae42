//! Whether the apiserver is ready, asked with a client certificate: without one it answers 401 from the first moment, ready or
//! not, and 6443 goes on answering when the distribution's own service has stopped.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::{
    calls::Call,
    cluster::{Cluster, Progress},
    error::{KubeError, bounded},
};

/// What `/readyz?verbose` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// 200.
    Ready,
    /// 500: these checks fail, in the apiserver's order.
    NotReady {
        /// Names such as `etcd` or `poststarthook/rbac/bootstrap-roles`.
        failing: Vec<String>,
    },
}

/// The pause between two probes of `/readyz`. A start takes 4 to 9 s (measured), so a quarter of a second is not noticed, and
/// a probe costs the apiserver next to nothing.
pub const READYZ_PROBE_EVERY: Duration = Duration::from_millis(250);
/// Most names of failing checks that are kept; there are 37 checks in all (1.36.3).
const FAILING_MAX: usize = 64;

impl Cluster {
    /// Asks once.
    pub async fn readyz(&self) -> Result<Readiness, KubeError> {
        let answer = self.calls.make(Call::get("/readyz?verbose")).await?;
        match answer.status {
            StatusCode::OK => Ok(Readiness::Ready),
            StatusCode::INTERNAL_SERVER_ERROR => {
                Ok(Readiness::NotReady { failing: failing_checks(&String::from_utf8_lossy(&answer.body)) })
            }
            _ => Err(answer.failure()),
        }
    }

    /// Probes until `/readyz` is `ok`; returns how long that took.
    ///
    /// Goes on through refused ports, broken connections and failing checks: all of these belong to a healthy start. Ends at once
    /// when waiting cannot help: another cluster's certificate, or credentials that are not accepted. Ends with
    /// [`KubeError::NotReady`], or the transport's error, when `patience` is over.
    pub async fn await_ready(&self, patience: Duration, progress: Progress<'_>) -> Result<Duration, KubeError> {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(READYZ_PROBE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut told = String::new();
        loop {
            ticks.tick().await;
            let left = patience.saturating_sub(began.elapsed());
            let seen = tokio::time::timeout(left, self.readyz())
                .await
                .unwrap_or(Err(KubeError::Silent { seconds: left.as_secs() }));
            let (waiting_for, broken) = match seen {
                Ok(Readiness::Ready) => return Ok(began.elapsed()),
                Ok(Readiness::NotReady { failing }) => (describe(&failing), None),
                Err(error) if error.is_transport() || matches!(error, KubeError::Busy { .. }) => {
                    (error.to_string(), Some(error))
                }
                Err(error) => return Err(error),
            };
            let seconds = began.elapsed().as_secs();
            if began.elapsed() + READYZ_PROBE_EVERY >= patience {
                return Err(broken.unwrap_or(KubeError::NotReady { last: waiting_for, seconds }));
            }
            // Told once per change and second, so that the record of a long wait stays short.
            let text = format!("waiting for the apiserver: {waiting_for} ({seconds} s)");
            if text != told {
                progress(text.clone());
                told = text;
            }
        }
    }
}

/// `[-]etcd failed: reason withheld` → `etcd`.
fn failing_checks(body: &str) -> Vec<String> {
    body.lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .filter_map(|line| line.split_whitespace().next())
        .take(FAILING_MAX)
        .map(bounded)
        .collect()
}

/// In words; names the last ones, which are those that matter near the end of a start.
fn describe(failing: &[String]) -> String {
    match failing {
        [] => "not ready".into(),
        [one] => format!("not ready: {one}"),
        [.., last] => format!("not ready: {} checks fail, among them {last}", failing.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failing_checks_are_read_by_name_and_passing_ones_are_not() {
        let body = "[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/rbac/bootstrap-roles failed: reason withheld\nreadyz check failed\n";
        assert_eq!(failing_checks(body), ["etcd", "poststarthook/rbac/bootstrap-roles"]);
        assert_eq!(
            describe(&failing_checks(body)),
            "not ready: 2 checks fail, among them poststarthook/rbac/bootstrap-roles"
        );
    }

    #[test]
    fn a_body_without_end_gives_a_bounded_list() {
        let body = "[-]x failed\n".repeat(100_000);
        assert_eq!(failing_checks(&body).len(), FAILING_MAX);
    }
}
