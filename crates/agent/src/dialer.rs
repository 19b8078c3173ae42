//! What the connections to the control plane share: the identity, the key set and the endpoints, which the control plane replaces.

use std::sync::Arc;

use gpuaas_host::Host;
use gpuaas_trust::{ALPN_NODE, SignedKeySet, node_client_config};
use rustls::ClientConfig;
use tokio::sync::{Mutex, Notify};

use crate::{
    clock::{NodeTime, now},
    endpoints::Endpoints,
    error::AgentError,
    fetch::Fetch,
    runner::Runner,
    state::{self, State},
};

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

impl Dialer {
    /// Returns the TLS configuration of a new connection.
    pub(crate) async fn tls(&self) -> Result<ClientConfig, AgentError> {
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
