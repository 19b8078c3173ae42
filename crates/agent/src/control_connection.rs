//! Keeps the control connection: dials, serves, and dials again.

use std::{sync::Arc, time::Duration};

use backon::BackoffBuilder;
use gpuaas_host::{Host, notify_ready, notify_status};
use gpuaas_model::Code;
use gpuaas_wire::session::{AgentProblem, ConnectionKind};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Mutex, Notify},
};

use crate::{
    clock::now,
    dialer::Dialer,
    endpoints::Endpoints,
    error::AgentError,
    fetch::Fetch,
    ledger::{Ledger, OpenError},
    renew,
    runner::{Addressee, Runner},
    service::Service,
    state::{self, Identity, State},
};

/// Wait before the second attempt; the first follows at once, because most connections end with a restart of the other side.
const RECONNECT_BASE: Duration = Duration::from_millis(100);
/// Longest wait between attempts.
const RECONNECT_CAP: Duration = Duration::from_secs(5);
/// A connection that lasted this long counts as good: after its loss the next attempt follows at once.
const STABLE_AFTER: Duration = Duration::from_secs(5);
/// After this time the agent reports readiness even without a connection: a machine's boot does not wait longer for a control plane.
const READY_WITHOUT_CONNECTION_AFTER: Duration = Duration::from_secs(20);

/// Serves the control plane until SIGTERM.
pub(crate) async fn run(host: Arc<dyn Host>, mut state: State) -> Result<(), AgentError> {
    let endpoints = Arc::new(Endpoints::new(state.identity.channels.clone()));
    let fetch = Arc::new(Fetch::new(&state, endpoints.clone())?);
    let identity = &state.identity;
    let keys = identity.key_set.open(&identity.authorities()?).map_err(|error| AgentError::State(error.to_string()))?;
    let addressee =
        Addressee { control_plane: identity.control_plane.clone(), node: identity.node, epoch: identity.epoch };
    let ledger = open_ledger(&host, &mut state).await?;
    let runner = Runner::new(host.clone(), fetch.clone(), addressee, keys, ledger);
    let (state, issuer_changed) = (Mutex::new(state), Notify::new());
    let dialer =
        Arc::new(Dialer { host, instance: random_hex(), endpoints, state, issuer_changed, fetch: fetch.clone() });
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| AgentError::State(error.to_string()))?;
    tokio::select! {
        () = maintain(&dialer, &runner) => Ok(()),
        () = renew::run(dialer.clone(), fetch) => Ok(()),
        () = notify_ready_after_timeout() => Ok(()),
        _ = terminate.recv() => Ok(()),
    }
}

/// Opens the ledger that the identity names. Without it the agent connects, reports the reason, and takes no tasks.
pub(crate) async fn open_ledger(
    host: &Arc<dyn Host>,
    state: &mut State,
) -> Result<Result<Ledger, AgentProblem>, AgentError> {
    let ledger = match Ledger::open(host.clone(), &state.identity.expected_ledger(), now()).await {
        Ok(ledger) => ledger,
        Err(OpenError::Ledger(problem)) => {
            let code = Code::AgentLedgerDamaged;
            tracing::error!(problem = problem.detail, %code, "this node accepts no tasks: run gpuaas-agent status for the reason");
            return Ok(Err(problem));
        }
        Err(error @ OpenError::Identity { .. }) => return Err(error.into()),
    };
    if let (None, Some(id)) = (&state.identity.ledger, ledger.id()) {
        // An older agent enrolled this node. From now on the agent takes no tasks without this ledger.
        let identity = Identity { ledger: Some(id.clone()), ..state.identity.clone() };
        match state::save(host, &identity).await {
            Ok(()) => state.identity = identity,
            Err(error) => tracing::warn!(%error, "could not write the ledger id into the identity"),
        }
    }
    Ok(Ok(ledger))
}

/// Reports readiness after [`READY_WITHOUT_CONNECTION_AFTER`]. systemd ignores a repeated report.
async fn notify_ready_after_timeout() {
    tokio::time::sleep(READY_WITHOUT_CONNECTION_AFTER).await;
    let _ = notify_ready();
    std::future::pending().await
}

/// Keeps a control connection for as long as the agent runs.
async fn maintain(dialer: &Arc<Dialer>, runner: &Arc<Runner>) {
    let mut waits = backoff();
    loop {
        let began = tokio::time::Instant::now();
        let ended = run_once(dialer, runner.clone(), began).await;
        if began.elapsed() > STABLE_AFTER {
            waits = backoff();
        }
        let wait = waits.next().unwrap_or(RECONNECT_CAP);
        let status = match ended {
            Ok(()) => {
                tracing::info!("the control connection ended; reconnecting");
                "not connected; reconnecting".to_owned()
            }
            Err(error) => {
                tracing::warn!(%error, wait_ms = wait.as_millis(), "the control connection failed; retrying");
                format!("not connected: {error}")
            }
        };
        let _ = notify_status(&status);
        tokio::time::sleep(wait).await;
    }
}

/// Keeps one control connection, to the first replica that answers.
async fn run_once(dialer: &Arc<Dialer>, runner: Arc<Runner>, began: tokio::time::Instant) -> Result<(), AgentError> {
    let (channel, stream) = dialer.endpoints.connect(&dialer.tls().await?).await?;
    tracing::info!(%channel, "connected");
    let ended = {
        let service = Service {
            host: dialer.host.clone(),
            runner,
            dialer: dialer.clone(),
            connection: ConnectionKind::Control,
            channel: channel.clone(),
        };
        service.serve(stream).await
    };
    if began.elapsed() <= STABLE_AFTER {
        // The replica accepts connections and does not keep them: another one may work.
        dialer.endpoints.mark_failed(&channel);
    }
    ended
}

/// Returns the waits between attempts: none, then 100 ms doubling up to the cap, without end; jittered so that a fleet does not reconnect
/// in step.
fn backoff() -> impl Iterator<Item = Duration> {
    let growing = backon::ExponentialBuilder::default()
        .with_min_delay(RECONNECT_BASE)
        .with_max_delay(RECONNECT_CAP)
        .without_max_times()
        .with_jitter()
        .build();
    std::iter::once(Duration::ZERO).chain(growing)
}

fn random_hex() -> String {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).expect("Linux provides random bytes once it has booted");
    hex::encode(bytes)
}
