//! Keeps the control connection: dials, serves, and dials again.

use std::{sync::Arc, time::Duration};

use backon::BackoffBuilder;
use gpuaas_host::{Host, notify_ready, notify_status};
use gpuaas_model::Code;
use gpuaas_trust::{ALPN_NODE, SignedKeySet, node_client_config};
use gpuaas_wire::session::{AgentProblem, ConnectionKind};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::{
    net::TcpStream,
    signal::unix::{SignalKind, signal},
    sync::{Mutex, Notify},
};
use tokio_rustls::client::TlsStream;

use crate::{
    clock::{NodeTime, now},
    endpoints::Endpoints,
    error::AgentError,
    fetch::Fetch,
    http_client::connect,
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
/// An HTTP/2 ping is sent after this time without traffic. The control plane pings after 5 s, so this side rarely has to.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The connection ends if a ping is unanswered for this long.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(5);
/// After this time the agent reports readiness even without a connection: a machine's boot does not wait longer for a control plane.
const READY_WITHOUT_CONNECTION_AFTER: Duration = Duration::from_secs(20);

/// Dials the control plane for one run of the agent.
pub(crate) struct Dialer {
    pub(crate) host: Arc<dyn Host>,
    /// Random per run: two live runs with one identity mean that the machine was cloned.
    pub(crate) instance: String,
    pub(crate) endpoints: Arc<Endpoints>,
    pub(crate) state: Mutex<State>,
    /// Notified when another authority issues.
    pub(crate) issuer_changed: Notify,
    pub(crate) fetch: Arc<Fetch>,
}

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
        () = dialer.clone().maintain_control_connection(runner) => Ok(()),
        () = renew::run(dialer, fetch) => Ok(()),
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

impl Dialer {
    async fn maintain_control_connection(self: Arc<Self>, runner: Arc<Runner>) {
        let mut waits = backoff();
        loop {
            let began = tokio::time::Instant::now();
            let ended = self.run_control_connection(runner.clone(), began).await;
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
    async fn run_control_connection(
        self: &Arc<Self>,
        runner: Arc<Runner>,
        began: tokio::time::Instant,
    ) -> Result<(), AgentError> {
        let (channel, stream) = self.endpoints.connect(&self.tls().await?).await?;
        tracing::info!(%channel, "connected");
        let ended = self.serve(runner, ConnectionKind::Control, channel.clone(), stream).await;
        if began.elapsed() <= STABLE_AFTER {
            // The replica accepts connections and does not keep them: another one may work.
            self.endpoints.mark_failed(&channel);
        }
        ended
    }

    /// Dials a further connection to the replica that requested it.
    pub(crate) fn dial_bulk(self: Arc<Self>, runner: Arc<Runner>, channel: String, request: String) {
        tokio::spawn(async move {
            let bulk = async {
                let stream = connect(&channel, self.tls().await?).await?;
                self.serve(runner, ConnectionKind::Bulk { request }, channel, stream).await
            };
            if let Err(error) = bulk.await {
                tracing::debug!(%error, "a bulk connection broke");
            }
        });
    }

    async fn serve(
        self: &Arc<Self>,
        runner: Arc<Runner>,
        connection: ConnectionKind,
        channel: String,
        stream: TlsStream<TcpStream>,
    ) -> Result<(), AgentError> {
        let service = Arc::new(Service { host: self.host.clone(), runner, dialer: self.clone(), connection, channel });
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service_fn(move |request| service.clone().answer(request)))
            .await
            .map_err(|error| AgentError::Unreachable(error.to_string()))
    }

    async fn tls(&self) -> Result<ClientConfig, AgentError> {
        tls(&*self.state.lock().await)
    }

    /// Replaces the endpoints of the control plane: used at once, and stored for the next start.
    pub(crate) async fn set_endpoints(&self, channels: Vec<String>) -> Result<(), String> {
        if !self.endpoints.replace(channels) {
            return Err("the list of endpoints is empty, too long or invalid".to_owned());
        }
        let mut state = self.state.lock().await;
        let channels = self.endpoints.in_order();
        if state.identity.channels != channels {
            state.identity.channels = channels;
            state::save(&self.host, &state.identity).await.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Accepts a signed key set with a higher version, or with the same version once the present set is due for renewal, and the
    /// authorities that it names. Both are stored first and then used. Existing connections continue.
    pub(crate) async fn accept_key_set(&self, runner: &Runner, signed: &SignedKeySet) -> Result<(), String> {
        let mut state = self.state.lock().await;
        let authorities = state.identity.authorities().map_err(|error| error.to_string())?;
        let current = runner.key_set();
        let keys = signed.verify(&authorities, Some(&current), now()).map_err(|error| error.to_string())?;
        if keys.version > current.version || current.needs_renewal(now()) {
            let identity = state.identity.with_key_set(signed, &keys);
            state::save(&self.host, &identity).await.map_err(|error| error.to_string())?;
            let authorities_changed = identity.authority != state.identity.authority;
            state.identity = identity;
            runner.set_keys(keys);
            if authorities_changed {
                self.fetch.update_tls(&state).map_err(|error| error.to_string())?;
                self.issuer_changed.notify_one();
            }
        }
        Ok(())
    }
}

fn tls(state: &State) -> Result<ClientConfig, AgentError> {
    let chain = vec![state.identity.certificate()?];
    let mut config = node_client_config(&state.identity.authorities()?, chain, state.key.to_der(), ALPN_NODE)
        .map_err(|error| AgentError::State(error.to_string()))?;
    config.time_provider = Arc::new(NodeTime);
    Ok(config)
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
