//! Routes outside of the OpenAPI document: health for load balancers and operators, without a token, and metrics.

use axum::{
    Router,
    extract::{RawQuery, State},
    http::StatusCode,
    routing::get,
};

use gpuaas_model::Timestamp;
use gpuaas_store::StoreError;

use crate::{
    certificate_expiry::{CertificateExpiry, Validity},
    state::{ApiState, Readiness},
};

pub(crate) fn router() -> Router<ApiState> {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(super::metrics::expose))
}

/// Reports that the process is running.
async fn livez() -> &'static str {
    "ok"
}

/// Reports whether requests can be served: the store answers and accepts changes. `?verbose` lists the checks.
async fn readyz(State(state): State<ApiState>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let ready = state.ready.get(readiness(&state)).await;
    let verbose = query.is_some_and(|query| query.contains("verbose"));
    // The log contains the details; this route is public.
    let (mut passed, mut checks) = match ready {
        Readiness::Ready => (true, "[+]store ok\n[+]disk ok\n".to_owned()),
        Readiness::NoSpace => (false, "[+]store ok\n[-]disk failed: the disk is full; reads still work\n".to_owned()),
        Readiness::Damaged => {
            (false, "[-]store failed: the database is damaged (store_damaged); restore a backup\n".to_owned())
        }
        Readiness::NoStore => (false, "[-]store failed\n".to_owned()),
        Readiness::HistoryRolledBack => (
            false,
            "[+]store ok\n[-]history failed: it went back; changes wait for an operator's decision; reads still work\n"
                .to_owned(),
        ),
        Readiness::NoSealingKey => {
            (false, "[+]store ok\n[-]sealing key failed: this replica lacks a key that the store uses\n".to_owned())
        }
    };
    let (are_valid, certificates) = certificates_check(&state.certificates, state.engine.ports().clock.now());
    passed &= are_valid;
    checks.push_str(&certificates);
    if passed && !verbose {
        return (StatusCode::OK, "ok".to_owned());
    }
    let (status, result) = match passed {
        true => (StatusCode::OK, "passed"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "failed"),
    };
    (status, format!("{checks}readyz check {result}\n"))
}

/// Returns whether the listeners' certificates are valid, and the line of the check.
fn certificates_check(certificates: &CertificateExpiry, now: Timestamp) -> (bool, String) {
    let end = certificates.get();
    match certificates.validity(now) {
        Validity::Valid => (true, "[+]certificates ok\n".to_owned()),
        Validity::ExpiresSoon => {
            (true, format!("[!]certificates warn: they expire at {end} and were not renewed; see the log\n"))
        }
        Validity::Expired => (false, format!("[-]certificates failed: they expired at {end}\n")),
    }
}

async fn readiness(state: &ApiState) -> Readiness {
    let store = state.engine.store();
    let checked = async {
        store.read().await?.key_set_version().await?;
        if !state.engine.holds_sealing_keys().await? {
            return Ok(Readiness::NoSealingKey);
        }
        if store.history_rolled_back().is_some() {
            return Ok(Readiness::HistoryRolledBack);
        }
        Ok(if store.accepts_changes().await? { Readiness::Ready } else { Readiness::NoSpace })
    };
    let checked: Result<Readiness, StoreError> = checked.await;
    match checked {
        // Damage lasts until a restart, even if later statements succeed.
        _ if store.damage().is_some() => Readiness::Damaged,
        Ok(readiness) => readiness,
        Err(error) => {
            tracing::warn!(%error, "the store does not respond");
            Readiness::NoStore
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn readiness_warns_before_certificates_expire_and_fails_afterwards() {
        let now = Timestamp::from_millis(1_790_000_000_000);
        let days = |days: u64| CertificateExpiry::at(now.plus(Duration::from_secs(days * 24 * 3_600)));
        assert_eq!(certificates_check(&days(60), now), (true, "[+]certificates ok\n".to_owned()));
        let (passed, line) = certificates_check(&days(19), now);
        assert!(passed && line.starts_with("[!]certificates warn"), "{line}");
        let (passed, line) = certificates_check(&CertificateExpiry::at(now), now);
        assert!(!passed && line.starts_with("[-]certificates failed"), "{line}");
    }
}
