//! Over a network, the store uses TLS and verifies the server.

use rcgen::{CertificateParams, KeyPair};

use gpuaas_postgres_server::Server;

use super::database::Database;

/// A loopback address derived from the process ID, which no other process is likely to use, so that no free port has to be found.
fn address() -> String {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    format!("127.{}.{middle}.{}", 64 + high % 64, low.max(1))
}

fn certificate(address: &str) -> (String, String) {
    let key = KeyPair::generate().expect("a key is generated");
    let params = CertificateParams::new([address.to_owned()]).expect("the address is a valid name");
    (params.self_signed(&key).expect("the certificate is signed").pem(), key.serialize_pem())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_connection_uses_tls_and_requires_the_trusted_certificate() {
    let address = address();
    let (certificate_pem, key_pem) = certificate(&address);
    let (other_pem, _) = certificate(&address);
    let folder = tempfile::tempdir().unwrap();
    let (right, wrong) = (folder.path().join("right.pem"), folder.path().join("wrong.pem"));
    std::fs::write(&right, &certificate_pem).unwrap();
    std::fs::write(&wrong, other_pem).unwrap();
    let listen = format!("listen_addresses={address}");
    let server = tokio::task::spawn_blocking(move || {
        let settings = [&*listen, "ssl=on", "ssl_cert_file=../cert.pem", "ssl_key_file=../key.pem"];
        Server::start(&settings, &[("cert.pem", certificate_pem), ("key.pem", key_pem)])
    });
    let server = server.await.unwrap();
    let database = server.fresh_database().await;
    let name = database.trim_start_matches("postgres:///").split('?').next().unwrap();
    let at = |root: &std::path::Path| {
        let root = root.display();
        Database::at(format!("postgres://gpuaas@{address}/{name}?sslmode=verify-full&sslrootcert={root}"), None)
    };
    let database = at(&right);
    database.open().await;
    let in_the_clear = "select count(*) from pg_stat_ssl join pg_stat_activity using (pid) \
                        where datname = current_database() and not ssl";
    assert_eq!(database.number(in_the_clear).await, 0);
    let refused = at(&wrong).try_open().await.err().expect("an untrusted certificate is refused").to_string();
    assert!(refused.contains("certificate"), "{refused}");
}
