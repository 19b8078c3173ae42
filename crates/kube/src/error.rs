//! What can go wrong between us and an apiserver, told apart where the caller acts differently.

use std::{error::Error as StdError, io};

use crate::{kubeconfig::KubeconfigError, metered::Exceeded};

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
    /// Too many calls are under way, of this cluster or of all: none of ours was made.
    #[error("too many calls to clusters are under way; try again after {seconds} s")]
    Busy {
        /// When it is worth trying again.
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

/// Why a connection could not be made.
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

impl From<OpenError> for KubeError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Refused => Self::Refused,
            OpenError::Unreachable(error) => Self::Unreachable(bounded(&error.to_string())),
            OpenError::Untrusted(error) => Self::Untrusted(bounded(&error.to_string())),
            OpenError::Handshake(error) if is_too_much(&error) => Self::Unreadable(Exceeded.to_string()),
            OpenError::Handshake(error) => Self::Interrupted(bounded(&format!("in the TLS handshake: {error}"))),
            OpenError::Slow(seconds) => Self::Silent { seconds },
        }
    }
}

impl From<hyper::Error> for KubeError {
    /// Looks through the sources for a limit that was passed; what is left over is a broken connection.
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            return Self::Unreadable("its headers are too long, or too many".to_owned());
        }
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            if error.downcast_ref::<io::Error>().is_some_and(is_too_much) {
                return Self::Unreadable(Exceeded.to_string());
            }
            text = error.to_string();
            cause = error.source();
        }
        Self::Interrupted(bounded(&text))
    }
}

fn is_too_much(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Exceeded>())
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

/// Most bytes of a foreign text inside one of our errors.
const FOREIGN_BYTES_MAX: usize = 400;

/// A foreign text, cut, on one line.
pub(crate) fn bounded(text: &str) -> String {
    // What is far too long is not looked through.
    let text = &text[..text.floor_char_boundary(2 * FOREIGN_BYTES_MAX)];
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
    fn a_refused_port_is_told_from_a_broken_connection_and_that_from_a_limit() {
        assert!(matches!(KubeError::from(OpenError::Refused), KubeError::Refused));
        let broken = |error| KubeError::from(OpenError::Handshake(error));
        assert!(matches!(broken(io::Error::from(io::ErrorKind::BrokenPipe)), KubeError::Interrupted(_)));
        assert!(matches!(broken(io::Error::other(Exceeded)), KubeError::Unreadable(_)));
    }
}
