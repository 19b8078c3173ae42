//! Readiness of the apiserver, read with client credentials: without them it answers 401 from the start, ready or not, and port 6443 keeps
//! answering after the distribution's own service has stopped.

use std::time::Duration;

use http::StatusCode;
use tokio::time::Instant;

use crate::{
    calls::Call,
    cluster::{Cluster, Progress},
    error::KubeError,
    text::bounded,
};

/// The result of `/readyz?verbose`.
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

/// Interval of `/readyz` probes. A start takes 4 to 9 s (measured), so a quarter of a second is negligible, and a probe costs the apiserver
/// almost nothing.
pub const READYZ_PROBE_EVERY: Duration = Duration::from_millis(250);
/// Most names of failing checks that are kept; there are 37 checks (1.36.3).
const FAILING_MAX: usize = 64;

impl Cluster {
    /// Probes `/readyz` once.
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

    /// Probes until `/readyz` is `ok`; returns the duration of the wait.
    ///
    /// Continues after refused connections, broken connections and failing checks, which are all part of a healthy start. Fails at once if
    /// waiting cannot help: with the certificate of another cluster, or with credentials that are not accepted. After `timeout` it fails
    /// with [`KubeError::NotReady`], or with the last error of the connection.
    pub async fn await_ready(&self, timeout: Duration, progress: Progress<'_>) -> Result<Duration, KubeError> {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(READYZ_PROBE_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut reported = String::new();
        loop {
            ticks.tick().await;
            let left = timeout.saturating_sub(began.elapsed());
            let seen = tokio::time::timeout(left, self.readyz())
                .await
                .unwrap_or(Err(KubeError::TimedOut { seconds: left.as_secs() }));
            let (waiting_for, broken) = match seen {
                Ok(Readiness::Ready) => return Ok(began.elapsed()),
                Ok(Readiness::NotReady { failing }) => (describe(&failing), None),
                Err(error) if error.is_transport() || matches!(error, KubeError::Busy { .. }) => {
                    (error.to_string(), Some(error))
                }
                Err(error) => return Err(error),
            };
            let seconds = began.elapsed().as_secs();
            if began.elapsed() + READYZ_PROBE_EVERY >= timeout {
                return Err(broken.unwrap_or(KubeError::NotReady { last: waiting_for, seconds }));
            }
            // Reports each change and each second once, so that the record of a long wait stays short.
            let text = format!("waiting for the apiserver: {waiting_for} ({seconds} s)");
            if text != reported {
                progress(text.clone());
                reported = text;
            }
        }
    }
}

/// Returns the names of failing checks: `etcd` for `[-]etcd failed: reason withheld`.
fn failing_checks(body: &str) -> Vec<String> {
    body.lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .filter_map(|line| line.split_whitespace().next())
        .take(FAILING_MAX)
        .map(bounded)
        .collect()
}

/// Describes failing checks; names the last one, which matters most near the end of a start.
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
    fn number_of_failing_checks_is_bounded() {
        let body = "[-]x failed\n".repeat(100_000);
        assert_eq!(failing_checks(&body).len(), FAILING_MAX);
    }
}
