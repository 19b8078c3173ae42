//! Decides which database addresses are acceptable: those on this machine, and across a network those that verify the
//! server's identity.
//!
//! Guarantees: the check uses the options that the driver reads from the address and the environment, not the text of
//! the address. No error contains a password.

use std::net::IpAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use crate::{dialect::Dialect, error::StoreError};

/// Refuses an address that the driver cannot parse, and one across a network without `sslmode=verify-full`.
pub(crate) fn check(dialect: Dialect, url: &str) -> Result<(), StoreError> {
    if dialect != Dialect::Postgres {
        return Ok(());
    }
    // The driver's own errors quote option names but no password.
    let options: PgConnectOptions =
        url.parse().map_err(|error| StoreError::Database(format!("cannot parse its address: {error}")))?;
    if is_local(&options) || matches!(options.get_ssl_mode(), PgSslMode::VerifyFull) {
        return Ok(());
    }
    Err(StoreError::InsecureConnection {
        host: options.get_host().to_owned(),
        sslmode: sslmode_name(options.get_ssl_mode()),
    })
}

/// Returns whether the connection stays on this machine. A name other than `localhost` may resolve to any address.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    options.get_socket().is_some()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// Returns the value as written in an address.
const fn sslmode_name(mode: PgSslMode) -> &'static str {
    match mode {
        PgSslMode::Disable => "disable",
        PgSslMode::Allow => "allow",
        PgSslMode::Prefer => "prefer",
        PgSslMode::Require => "require",
        PgSslMode::VerifyCa => "verify-ca",
        PgSslMode::VerifyFull => "verify-full",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_address_without_verify_full_is_refused() {
        for (url, is_accepted) in [
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=verify-full", true),
            ("postgresql://u:hunter2@db.example/gpuaas?ssl-mode=verify-full&sslrootcert=/ca.pem", true),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=require&sslmode=verify-full", true),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=verify%2Dfull", true),
            ("postgres://u:hunter2@127.0.0.1/gpuaas?sslmode=disable", true),
            ("postgres://u:hunter2@127.77.1.9/gpuaas?sslmode=prefer", true),
            ("postgres://u:hunter2@[::1]/gpuaas?sslmode=disable", true),
            ("postgres://u:hunter2@LocalHost/gpuaas?sslmode=disable", true),
            ("postgres:///gpuaas?host=/run/postgresql&user=u&password=hunter2&sslmode=disable", true),
            ("postgres://u:hunter2@%2Frun%2Fpostgresql/gpuaas?sslmode=disable", true),
            ("postgres://u:hunter2@db.example/gpuaas?hostaddr=127.0.0.1&sslmode=disable", true),
            ("sqlite:///var/lib/gpuaas/gpuaas.db", true),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=disable", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=allow", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=prefer", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=require", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=verify-ca", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=verify-full&sslmode=prefer", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=verify-full&ssl-mode=disable", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=verify-full&%73slmode=disable", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=prefer#?sslmode=verify-full", false),
            ("postgres://u:hunter2@127.0.0.1/gpuaas?hostaddr=192.0.2.7&sslmode=disable", false),
            ("postgres://u:hunter2@127.0.0.1/gpuaas?host=db.example&sslmode=disable", false),
            ("postgres://u:hunter2@localhost,db.example/gpuaas?sslmode=disable", false),
            ("postgres://u:hunter2@localhost/gpuaas?host=localhost,db.example&sslmode=disable", false),
            ("postgres://u:hunter2@localhost.evil.example/gpuaas?sslmode=disable", false),
            ("postgres://localhost:hunter2@db.example/gpuaas?sslmode=disable", false),
            ("postgres://u:hunter2@127.0.0.1.evil.example/gpuaas?sslmode=disable", false),
            ("postgres://u:hunter2@[2001:db8::1]/gpuaas?sslmode=disable", false),
            ("postgres://u:hunter2@0.0.0.0/gpuaas?sslmode=disable", false),
            ("postgres://u:hunter2@db.example/gpuaas?sslmode=verify-everything", false),
            ("postgres://u:hunter2@db.example:port/gpuaas", false),
            ("postgres://u:hunter2/x@db.example/gpuaas?sslmode=verify-full", false),
        ] {
            let checked = check(Dialect::of(url).expect("it is known"), url);
            assert_eq!(checked.is_ok(), is_accepted, "{url}: {checked:?}");
            if let Err(refused) = checked {
                assert!(!refused.to_string().contains("hunter2"), "{url}: {refused}");
            }
        }
    }
}
