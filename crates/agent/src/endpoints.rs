//! The endpoints at which the control plane's replicas listen for nodes. All are equivalent; the one that served last is tried first.

use std::sync::{Mutex, PoisonError};

use gpuaas_wire::session::CHANNEL_ENDPOINTS_MAX;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::{error::AgentError, http_client::connect};

/// Longest endpoint in bytes: a host name has at most 253 characters.
const ENDPOINT_BYTES_MAX: usize = 260;

/// The endpoints in the order in which they are tried.
#[derive(Debug)]
pub(crate) struct Endpoints(Mutex<Vec<String>>);

impl Endpoints {
    pub(crate) fn new(channels: Vec<String>) -> Self {
        Self(Mutex::new(channels))
    }

    /// Returns all endpoints in their present order, to store them.
    pub(crate) fn in_order(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the endpoints; the present first one stays first if the new list contains it. Returns false, and changes nothing, if the
    /// list is invalid.
    pub(crate) fn replace(&self, mut channels: Vec<String>) -> bool {
        let is_endpoint = |channel: &String| {
            let port = channel.rsplit_once(':').filter(|(host, _)| !host.is_empty()).map(|(_, port)| port);
            channel.len() <= ENDPOINT_BYTES_MAX && port.is_some_and(|port| port.parse::<u16>().is_ok())
        };
        if channels.is_empty() || channels.len() > CHANNEL_ENDPOINTS_MAX || !channels.iter().all(is_endpoint) {
            return false;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = known.first().and_then(|first| channels.iter().position(|channel| channel == first)) {
            channels[..=at].rotate_right(1);
        }
        *known = channels;
        true
    }

    /// Moves an endpoint that did not serve to the end of the order.
    pub(crate) fn mark_failed(&self, channel: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = known.iter().position(|known| known == channel) {
            known[at..].rotate_left(1);
        }
    }

    /// Connects to the first endpoint that answers, and returns that endpoint with the stream.
    pub(crate) async fn connect(&self, tls: &ClientConfig) -> Result<(String, TlsStream<TcpStream>), AgentError> {
        let mut last = AgentError::Unreachable("no endpoint of the control plane is known".to_owned());
        for channel in self.in_order() {
            match connect(&channel, tls.clone()).await {
                Ok(stream) => return Ok((channel, stream)),
                Err(error) => {
                    tracing::debug!(%channel, %error, "an endpoint is unreachable");
                    self.mark_failed(&channel);
                    last = error;
                }
            }
        }
        Err(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoints(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn the_endpoint_that_serves_stays_first_and_the_one_that_fails_goes_last() {
        let known = Endpoints::new(endpoints("a:1 b:1 c:1"));
        known.mark_failed("a:1");
        assert_eq!(known.in_order(), endpoints("b:1 c:1 a:1"));
        assert!(known.replace(endpoints("a:1 b:1 d:1")));
        assert_eq!(known.in_order(), endpoints("b:1 a:1 d:1"));
        assert!(known.replace(endpoints("e:1 f:1")));
        assert_eq!(known.in_order(), endpoints("e:1 f:1"));
        known.mark_failed("unknown:1");
        assert_eq!(known.in_order(), endpoints("e:1 f:1"));
    }

    #[test]
    fn invalid_endpoints_are_ignored() {
        let known = Endpoints::new(endpoints("a:1"));
        let many = vec!["a:1".to_owned(); CHANNEL_ENDPOINTS_MAX + 1];
        let long = vec![format!("{}:1", "a".repeat(ENDPOINT_BYTES_MAX))];
        for bad in [vec![], many, long, endpoints("b:1 b"), endpoints(":1"), endpoints("b:65536")] {
            assert!(!known.replace(bad.clone()), "{bad:?}");
        }
        assert_eq!(known.in_order(), endpoints("a:1"));
    }
}
