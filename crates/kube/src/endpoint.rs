//! The address of a cluster.

use std::fmt;

use rustls_pki_types::ServerName;

use crate::error::KubeError;

/// The address at which clients of the cluster reach its apiserver; the apiserver's certificate must be valid for its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// An IP address or a DNS name.
    pub host: String,
    /// The port; 6443 for RKE2.
    pub port: u16,
}

impl Endpoint {
    pub(crate) fn authority(&self) -> String {
        match self.host.parse::<std::net::Ipv6Addr>() {
            Ok(host) => format!("[{host}]:{}", self.port),
            Err(_) => format!("{}:{}", self.host, self.port),
        }
    }

    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, KubeError> {
        ServerName::try_from(self.host.clone())
            .map_err(|_| KubeError::Refusal(format!("{:?} is not a valid address or host name", self.host)))
    }
}

impl fmt::Display for Endpoint {
    /// Formats the endpoint as a URL: `https://10.0.0.4:6443`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "https://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_prints_as_a_url_for_every_kind_of_host() {
        let url = |host: &str| Endpoint { host: host.into(), port: 6443 }.to_string();
        assert_eq!(url("10.0.0.4"), "https://10.0.0.4:6443");
        assert_eq!(url("fd00::4"), "https://[fd00::4]:6443");
        assert_eq!(url("k8s.example"), "https://k8s.example:6443");
        assert!(Endpoint { host: String::new(), port: 1 }.server_name().is_err());
    }
}
