//! Addresses and file names of control planes: the scenario's main one, and others that nodes are redirected to or kept from.

use std::net::Ipv4Addr;

/// API port of the main control plane; its node channel uses the next port.
const PORT: u16 = 7443;

/// Properties that distinguish one control plane from another.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// None for the main control plane.
    name: Option<&'static str>,
    port: u16,
    public_url: Option<String>,
}

impl Site {
    /// The main control plane of the scenario.
    pub(super) const OWN: Self = Self { name: None, port: PORT, public_url: None };

    /// Returns another site at another port.
    pub(crate) fn new(name: &'static str, port: u16) -> Self {
        Self { name: Some(name), port, public_url: None }
    }

    /// Sets the URL that nodes are given.
    pub(crate) fn with_public_url(self, url: &str) -> Self {
        Self { public_url: Some(url.to_owned()), ..self }
    }

    /// Returns the name of a file of this control plane.
    pub(super) fn file(&self, of: &str) -> String {
        self.name.map_or_else(|| of.to_owned(), |name| format!("{name}-{of}"))
    }

    /// Reports whether it is the main control plane.
    pub(super) fn is_own(&self) -> bool {
        self.name.is_none()
    }

    /// URL that nodes use.
    pub(super) fn url(&self, gateway: Ipv4Addr) -> String {
        self.public_url.clone().unwrap_or_else(|| self.address(gateway))
    }

    /// Actual address of the API.
    pub(super) fn address(&self, gateway: Ipv4Addr) -> String {
        format!("https://{gateway}:{}", self.port)
    }

    /// Arguments of `gpuaas server` for these addresses.
    pub(super) fn arguments(&self, gateway: Ipv4Addr) -> Vec<String> {
        let listen = [("--listen", self.port), ("--channel-listen", self.port + 1)];
        let listen = listen.into_iter().flat_map(|(flag, port)| [flag.to_owned(), format!("{gateway}:{port}")]);
        let called = self.public_url.iter().flat_map(|url| ["--public-url".to_owned(), url.clone()]);
        listen.chain(called).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_share_neither_ports_nor_files() {
        let (own, other) = (Site::OWN, Site::new("other", 7543).with_public_url("https://cp.example:7543"));
        let gateway = Ipv4Addr::LOCALHOST;
        assert_eq!(
            (own.url(gateway).as_str(), other.url(gateway).as_str()),
            ("https://127.0.0.1:7443", "https://cp.example:7543")
        );
        assert!(
            other
                .arguments(gateway)
                .iter()
                .all(|word| word.starts_with("--") || !own.arguments(gateway).contains(word))
        );
        assert_ne!(own.file("log"), other.file("log"));
    }
}
