//! Renews the node's certificate at two thirds of its life, or when another authority becomes the issuing one, each time with a new key.

use std::{sync::Arc, time::Duration};

use gpuaas_model::Timestamp;
use gpuaas_trust::{NODE_CERTIFICATE_LIFE, NodeKey};

use crate::{clock::now, dialer::Dialer, error::AgentError, fetch::Fetch, state};

/// Renewal starts with a third of the life left: with a life of 24 h, the control plane can be down for eight hours before a certificate
/// expires.
const RENEW_AT_LIFE_PERCENT: u32 = 67;
/// Wait after a failed renewal.
const RETRY: Duration = Duration::from_secs(60);

/// Renews for as long as the agent runs.
pub(crate) async fn run(dialer: Arc<Dialer>, fetch: Arc<Fetch>) {
    // If the agent died before it confirmed a renewed certificate, its next connection confirms it.
    let mut is_confirmed = true;
    loop {
        let renew_at = renewal_at(&dialer).await.unwrap_or_else(|_| now());
        tokio::select! {
            () = tokio::time::sleep(renew_at.since(now())) => {}
            // The renewal may be due at once.
            () = dialer.issuer_changed.notified() => continue,
            () = tokio::time::sleep(RETRY), if !is_confirmed => {
                is_confirmed = confirm_renewal(&fetch).await;
                continue;
            }
        }
        match renew(&dialer, &fetch).await {
            Ok(is_current) => {
                tracing::info!("the node's certificate was renewed");
                is_confirmed = confirm_renewal(&fetch).await;
                if !is_current {
                    // The replica does not know yet that another authority is the issuing one.
                    tokio::time::sleep(RETRY).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "could not renew the node's certificate; retrying");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}

/// Renews once. Returns false if the new certificate is still not signed by the issuing authority.
async fn renew(dialer: &Dialer, fetch: &Fetch) -> Result<bool, AgentError> {
    let damaged = |error: gpuaas_trust::AuthorityError| AgentError::State(error.to_string());
    let key = NodeKey::generate().map_err(damaged)?;
    let certificate = fetch.renew(key.request_pem().map_err(damaged)?).await?;
    let mut state = dialer.state.lock().await;
    let renewed = state.renewed(certificate, key);
    state::save(&dialer.host, &renewed.identity).await?;
    *state = renewed;
    fetch.update_tls(&state)?;
    Ok(!state.identity.is_of_former_authority()?)
}

/// Confirms to the control plane that the renewed certificate is stored. One that expires unconfirmed is renewed like any other.
async fn confirm_renewal(fetch: &Fetch) -> bool {
    let shown = fetch.confirm_renewal().await;
    shown
        .inspect_err(
            |error| tracing::warn!(%error, "could not confirm the renewed certificate to the control plane; retrying"),
        )
        .is_ok()
}

async fn renewal_at(dialer: &Dialer) -> Result<Timestamp, AgentError> {
    let state = dialer.state.lock().await;
    if state.identity.is_of_former_authority()? {
        return Ok(now());
    }
    let certificate = state.identity.certificate()?;
    let end = gpuaas_trust::expires_at(&certificate).map_err(|error| AgentError::State(error.to_string()))?;
    let left = NODE_CERTIFICATE_LIFE * (100 - RENEW_AT_LIFE_PERCENT) / 100;
    let left = i64::try_from(left.as_millis()).unwrap_or(0);
    Ok(Timestamp::from_millis(end.as_millis() - left))
}
