//! Errors of calls to an apiserver, one variant for each case in which callers act differently.

use std::{error::Error as StdError, io};

use crate::{
    drain_error::{DrainBlock, DrainRefusal},
    kubeconfig::KubeconfigError,
    metered::Exceeded,
    text::bounded,
};

/// The error of a failed call. Its texts contain no credentials; texts of the peer are cut to a limited length.
#[derive(Debug, thiserror::Error)]
pub enum KubeError {
    /// The kubeconfig cannot be used.
    #[error(transparent)]
    Kubeconfig(#[from] KubeconfigError),
    /// Nothing listens on the apiserver's port: it is not started yet, or has stopped.
    #[error("the apiserver's port refuses connections")]
    Refused,
    /// No stream could be opened: the node or its channel is not connected.
    #[error("cannot reach the apiserver: {0}")]
    Unreachable(String),
    /// The certificate is of another certificate authority or lacks the name: this is not the kubeconfig's cluster.
    #[error("the apiserver's certificate is not from this cluster's CA: {0}")]
    Untrusted(String),
    /// The stream broke before the answer was complete.
    #[error("the connection to the apiserver failed: {0}")]
    Interrupted(String),
    /// 401: the cluster does not, or no longer, accept the certificate or token.
    #[error("the apiserver rejected the credentials (401 Unauthorized)")]
    Unauthorized,
    /// 403: authenticated, but without the right.
    #[error("the apiserver denied the request (403 Forbidden): {0}")]
    Forbidden(String),
    /// 404: the object does not exist.
    #[error("the apiserver has no such object: {0}")]
    NotFound(String),
    /// 409: the object already exists, or was changed concurrently.
    #[error("the apiserver reported a conflict: {0}")]
    Conflict(String),
    /// Any other unsuccessful answer.
    #[error("the apiserver answered {status}: {message}")]
    Answered {
        /// The HTTP status.
        status: u16,
        /// The apiserver's message.
        message: String,
    },
    /// The answer does not have the shape of Kubernetes' answers, or exceeds a limit that the text names.
    #[error("the apiserver's response is invalid: {0}")]
    Unreadable(String),
    /// The answer is longer than its limit.
    #[error("the apiserver's response is invalid: the response is longer than {bytes_max} bytes")]
    TooLong {
        /// The limit, in bytes.
        bytes_max: usize,
    },
    /// The time limit passed without an answer: [`crate::REQUEST_TIMEOUT`], or the shorter one of a connection attempt, a wait or a silent
    /// watch.
    #[error("the apiserver did not answer within {seconds} s")]
    TimedOut {
        /// The limit, in seconds.
        seconds: u64,
    },
    /// Too many calls are in progress, to this cluster or to all: the call was not made.
    #[error("too many cluster calls are in progress; try again in {seconds} s")]
    Busy {
        /// Seconds after which to try again.
        seconds: u64,
    },
    /// The wait reached its time limit.
    #[error("not ready after {seconds} s: {last}")]
    NotReady {
        /// The last observed reason.
        last: String,
        /// Duration of the wait in seconds.
        seconds: u64,
    },
    /// The cluster has no KubeNode of this name.
    #[error("the cluster has no KubeNode {0}")]
    NoKubeNode(String),
    /// Pods can be evicted only with a flag that the drain does not have.
    #[error(transparent)]
    DrainRefused(Box<DrainRefusal>),
    /// The time limit of a drain passed while pods were held or had not ended.
    #[error(transparent)]
    DrainBlocked(Box<DrainBlock>),
    /// The request is invalid, and this crate did not send it.
    #[error("{0}")]
    Refusal(String),
}

impl KubeError {
    /// Returns true if the connection and not the apiserver failed: a new connection may succeed.
    pub fn is_transport(&self) -> bool {
        matches!(self, Self::Refused | Self::Unreachable(_) | Self::Interrupted(_) | Self::TimedOut { .. })
    }
}

/// The reason why a connection could not be opened.
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
    #[error("no TLS handshake within {0} s")]
    TimedOut(u64),
}

impl From<OpenError> for KubeError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Refused => Self::Refused,
            OpenError::Unreachable(error) => Self::Unreachable(bounded(&error.to_string())),
            OpenError::Untrusted(error) => Self::Untrusted(bounded(&error.to_string())),
            OpenError::Handshake(error) if is_limit_exceeded(&error) => Self::Unreadable(Exceeded.to_string()),
            OpenError::Handshake(error) => Self::Interrupted(bounded(&format!("in the TLS handshake: {error}"))),
            OpenError::TimedOut(seconds) => Self::TimedOut { seconds },
        }
    }
}

impl From<hyper::Error> for KubeError {
    /// Searches the sources for an exceeded limit; any other failure is a broken connection.
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            return Self::Unreadable("the response has too many or too long headers".to_owned());
        }
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            if error.downcast_ref::<io::Error>().is_some_and(is_limit_exceeded) {
                return Self::Unreadable(Exceeded.to_string());
            }
            text = error.to_string();
            cause = error.source();
        }
        Self::Interrupted(bounded(&text))
    }
}

fn is_limit_exceeded(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<Exceeded>())
}

/// Returns the error of an answer with this status.
pub(crate) fn status_error(status: u16, message: impl AsRef<str>) -> KubeError {
    let message = bounded(message.as_ref());
    match status {
        401 => KubeError::Unauthorized,
        403 => KubeError::Forbidden(message),
        404 => KubeError::NotFound(message),
        409 => KubeError::Conflict(message),
        status => KubeError::Answered { status, message },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_port_broken_connection_and_limit_are_distinct() {
        assert!(matches!(KubeError::from(OpenError::Refused), KubeError::Refused));
        let broken = |error| KubeError::from(OpenError::Handshake(error));
        assert!(matches!(broken(io::Error::from(io::ErrorKind::BrokenPipe)), KubeError::Interrupted(_)));
        assert!(matches!(broken(io::Error::other(Exceeded)), KubeError::Unreadable(_)));
    }
}
