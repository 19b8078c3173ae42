//! Parses the public URL of the control plane. It is printed into command lines that root runs on nodes, and its host goes into
//! certificates.

use std::sync::LazyLock;

use regex::Regex;

/// A host name, an IPv4 address or a bracketed IPv6 address, and an optional port. Excludes user info, paths and queries.
static FORM: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^https://([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?/?$")
        .expect("a valid pattern")
});

/// Accepts `https://HOST` or `https://HOST:PORT`, optionally with a trailing slash, and returns it without the slash. TLS is required:
/// nodes pin the control plane's certificate authority.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    let url = text.trim_end_matches('/');
    let is_port_valid = url.rsplit_once(':').is_none_or(|(_, port)| {
        port.is_empty()
            || !port.bytes().all(|byte| byte.is_ascii_digit())
            || port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if FORM.is_match(text) && is_port_valid {
        Ok(url.to_owned())
    } else {
        Err("expected https://HOST or https://HOST:PORT".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_urls_that_nodes_can_call_are_accepted() {
        for url in [
            "https://cp.example:7443",
            "https://cp",
            "https://10.0.0.1:443",
            "https://[2001:db8::7]:7443",
            "https://[::1]",
        ] {
            assert_eq!(parse(url).as_deref(), Ok(url));
        }
        assert_eq!(parse("https://cp.example/").as_deref(), Ok("https://cp.example"));
        for url in [
            "http://cp.example:7443",
            "cp.example:7443",
            "https://",
            "https://cp.example/api",
            "https://u:p@cp.example",
            "https://cp:70000",
            "https://cp:0",
            "https://cp.example:",
            "https://a b",
            "https://$(id)",
            "https://cp'",
            "https://cp\n",
            "https://::1",
        ] {
            assert!(parse(url).is_err(), "{url}");
        }
    }
}
