//! Expiry of the certificates of the control plane's listeners, for readiness and metrics.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use gpuaas_model::Timestamp;

/// Remaining life below which readiness warns. Renewal starts 30 days before expiry, so it has failed for ten days.
const WARN_BEFORE: Duration = Duration::from_secs(20 * 24 * 3_600);

/// Expiry of the certificate that expires first.
#[derive(Debug)]
pub struct CertificateExpiry(AtomicI64);

/// Validity of the certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Validity {
    Valid,
    /// They expire soon and were not renewed.
    ExpiresSoon,
    Expired,
}

impl CertificateExpiry {
    /// Creates the value with an expiry.
    pub fn at(end: Timestamp) -> Self {
        Self(AtomicI64::new(end.as_millis()))
    }

    /// Replaces the expiry.
    pub fn set(&self, end: Timestamp) {
        self.0.store(end.as_millis(), Ordering::Relaxed);
    }

    /// Returns the expiry.
    pub fn get(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn validity(&self, now: Timestamp) -> Validity {
        match self.get() {
            end if end <= now => Validity::Expired,
            end if end <= now.plus(WARN_BEFORE) => Validity::ExpiresSoon,
            _ => Validity::Valid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unrenewed_certificates_are_reported_before_expiry() {
        let end = Timestamp::from_millis(100 * 24 * 3_600_000);
        let certificates = CertificateExpiry::at(end);
        let before = |days: i64| Timestamp::from_millis(end.as_millis() - days * 24 * 3_600_000);
        assert_eq!(certificates.validity(before(30)), Validity::Valid, "renewal is due at this age");
        assert_eq!(certificates.validity(before(20)), Validity::ExpiresSoon);
        assert_eq!(certificates.validity(end), Validity::Expired);
    }
}
