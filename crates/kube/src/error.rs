//! What can go wrong between us and an apiserver, told apart where the caller acts differently.

use std::{error::Error as StdError, io};

use crate::kubeconfig::KubeconfigError;

/// A call that did not succeed. Texts hold no credential; what the other side said is cut to a bounded length.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// Nothing listens on the apiserver's port: not started yet, or gone.
    #[error("the apiserver's port refuses connections")]
    Refused,
    /// No stream could be opened: the node or its channel is away.
    #[error("no way to the apiserver: {0}")]
    Unreachable(String),
    /// Another certificate authority, or a certificate that lacks the name: not the cluster that the kubeconfig is of.
    #[error("the apiserver's certificate is not one of this cluster: {0}")]
    Untrusted(String),
    /// The stream broke before the answer was complete.
    #[error("the connection to the apiserver broke: {0}")]
    Interrupted(String),
    /// 401: the certificate or token is not, or no longer, known to the cluster.
    #[error("the apiserver does not accept the credentials (401 Unauthorized)")]
    Unauthorized,
    /// 403: known, but without the right.
    #[error("the apiserver forbids it (403 Forbidden): {0}")]
    Forbidden(String),
    /// 404.
    #[error("the apiserver knows no such object: {0}")]
    NotFound(String),
    /// 409: it exists already, or changed meanwhile.
    #[error("the apiserver sees a conflict: {0}")]
    Conflict(String),
    /// Any other answer that is not a success.
    #[error("the apiserver answered {status}: {message}")]
    Answered {
        /// The HTTP status.
        status: u16,
        /// What it said.
        message: String,
    },
    /// An answer that is not what Kubernetes answers, or longer than the named limit.
    #[error("the apiserver's answer cannot be read: {0}")]
    Unreadable(String),
    /// No answer within [`crate::REQUEST_TIMEOUT`].
    #[error("the apiserver did not answer in {seconds} s")]
    Silent {
        /// How long was waited.
        seconds: u64,
    },
    /// The wait's patience ended. `last` is what was seen last.
    #[error("still {last} after {seconds} s")]
    NotReady {
        /// What was missing.
        last: String,
        /// How long was waited.
        seconds: u64,
    },
    /// A request that this crate refuses to make.
    #[error("{0}")]
    Refusal(String),
}

impl KubeError {
    /// Whether the connection, not the apiserver, is at fault: a new connection may do better.
    pub fn is_transport(&self) -> bool {
        matches!(self, Self::Refused | Self::Unreachable(_) | Self::Interrupted(_) | Self::Silent { .. })
    }
}

/// Why a connection could not be made; travels inside the HTTP client's error and is found again by [`KubeError::from`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    #[error("refused")]
    Refused,
    #[error("{0}")]
    Unreachable(io::Error),
    #[error("{0}")]
    Untrusted(rustls::Error),
    #[error("{0}")]
    Handshake(io::Error),
    #[error("no TLS handshake in {0} s")]
    Slow(u64),
}

impl From<kube::Error> for KubeError {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => answered(status.code, status.message),
            kube::Error::SerdeError(error) => Self::Unreadable(bounded(&error.to_string())),
            kube::Error::FromUtf8(error) => Self::Unreadable(error.to_string()),
            kube::Error::Service(error) => of_chain(error.as_ref()),
            other => of_chain(&other),
        }
    }
}

/// The error of an answer with that status.
pub(crate) fn answered(status: u16, message: impl AsRef<str>) -> KubeError {
    let message = bounded(message.as_ref());
    match status {
        401 => KubeError::Unauthorized,
        403 => KubeError::Forbidden(message),
        404 => KubeError::NotFound(message),
        409 => KubeError::Conflict(message),
        status => KubeError::Answered { status, message },
    }
}

/// Looks through the sources for a failure that we know by type; what is left over is a broken connection.
fn of_chain(error: &(dyn StdError + 'static)) -> KubeError {
    let mut texts = Vec::new();
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(open) = error.downcast_ref::<OpenError>() {
            return of_open(open);
        }
        if error.is::<http_body_util::LengthLimitError>() {
            return KubeError::Unreadable(format!("longer than {} bytes", crate::ANSWER_BYTES_MAX));
        }
        texts.push(error.to_string());
        cause = error.source();
    }
    KubeError::Interrupted(bounded(texts.last().map_or("", String::as_str)))
}

fn of_open(open: &OpenError) -> KubeError {
    match open {
        OpenError::Refused => KubeError::Refused,
        OpenError::Unreachable(error) => KubeError::Unreachable(bounded(&error.to_string())),
        OpenError::Untrusted(error) => KubeError::Untrusted(bounded(&error.to_string())),
        OpenError::Handshake(error) => KubeError::Interrupted(bounded(&format!("in the TLS handshake: {error}"))),
        OpenError::Slow(seconds) => KubeError::Silent { seconds: *seconds },
    }
}

/// Most bytes of a foreign text inside one of our errors.
const FOREIGN_BYTES_MAX: usize = 400;

/// A foreign text, cut, on one line.
pub(crate) fn bounded(text: &str) -> String {
    let mut kept: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if kept.len() > FOREIGN_BYTES_MAX {
        let end = kept.floor_char_boundary(FOREIGN_BYTES_MAX);
        kept.truncate(end);
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_text_stays_short_and_on_one_line() {
        assert_eq!(bounded("a\nb"), "a b");
        assert!(bounded(&"ü".repeat(10_000)).len() < FOREIGN_BYTES_MAX + 8);
    }

    #[test]
    fn a_refused_port_is_told_from_a_broken_connection() {
        let of = |error: tower::BoxError| KubeError::from(kube::Error::Service(error));
        assert!(matches!(of(Box::new(OpenError::Refused)), KubeError::Refused));
        assert!(matches!(of(Box::new(io::Error::from(io::ErrorKind::BrokenPipe))), KubeError::Interrupted(_)));
    }
}
