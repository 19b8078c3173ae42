use gpuaas_model::Timestamp;

use super::*;
use crate::authority::Authority;

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

/// Runs a handshake in memory and returns the negotiated version.
fn handshake(client: ClientConfig, server: ServerConfig) -> Result<rustls::ProtocolVersion, rustls::Error> {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = rustls::ServerConnection::new(Arc::new(server)).unwrap();
    while client.is_handshaking() || server.is_handshaking() {
        let mut flight = Vec::new();
        client.write_tls(&mut flight).unwrap();
        server.read_tls(&mut flight.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut flight = Vec::new();
        server.write_tls(&mut flight).unwrap();
        client.read_tls(&mut flight.as_slice()).unwrap();
        client.process_new_packets()?;
    }
    Ok(server.protocol_version().unwrap())
}

/// Configures a client with a certificate of `authority` that trusts `authority` and supports only these versions.
fn client_with_versions(authority: &Authority, versions: &[&'static SupportedProtocolVersion]) -> ClientConfig {
    let (chain, key) = authority.issue_server(&["127.0.0.1".into()], now()).unwrap();
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots(authority.certificates()).unwrap())
        .with_client_auth_cert(chain, key)
        .unwrap();
    config.alpn_protocols = [ALPN_NODE, ALPN_REPLICA, b"h2"].map(<[u8]>::to_vec).to_vec();
    config
}

/// Returns the machine's time, which handshakes use.
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
}

#[test]
fn clients_of_tls_1_2_are_refused_except_by_an_api_that_allows_them() {
    let authority = Authority::generate("cp-1", now()).unwrap();
    let issue = || authority.issue_server(&["127.0.0.1".into()], now()).unwrap();
    let api = |oldest| {
        let (chain, key) = issue();
        api_server_config(ReloadableCertificate::new(chain, key).unwrap(), oldest).unwrap()
    };
    let channel = || {
        let (chain, key) = issue();
        channel_server_config(ReloadableCertificate::new(chain, key).unwrap(), &trusting(authority.certificates()))
            .unwrap()
    };
    let replica = || {
        let (chain, key) = issue();
        replica_server_config(ReloadableCertificate::new(chain, key).unwrap(), &trusting(authority.certificates()))
            .unwrap()
    };
    let (old, both) =
        (|| client_with_versions(&authority, &[&TLS12]), || client_with_versions(&authority, &[&TLS12, &TLS13]));
    for (name, server) in [("api", api(OldestTls::default())), ("channel", channel()), ("replica", replica())] {
        let ended = handshake(old(), server);
        assert!(matches!(ended, Err(rustls::Error::PeerIncompatible(_))), "{name}: {ended:?}");
    }
    assert_eq!(handshake(old(), api(OldestTls::V1_2)), Ok(rustls::ProtocolVersion::TLSv1_2));
    for server in [api(OldestTls::V1_2), api(OldestTls::V1_3)] {
        assert_eq!(handshake(both(), server), Ok(rustls::ProtocolVersion::TLSv1_3));
    }
}

#[test]
fn platform_clients_refuse_tls_1_2() {
    let authority = Authority::generate("cp-1", now()).unwrap();
    let issue = || authority.issue_server(&["127.0.0.1".into()], now()).unwrap();
    let (chain, key) = issue();
    let clients = [
        client_config(authority.certificate_pem().as_bytes()).unwrap(),
        pinned_client_config(&authority.digest()).unwrap(),
        node_client_config(authority.certificates(), chain, key, b"h2").unwrap(),
    ];
    for client in clients {
        let (chain, key) = issue();
        let server = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS12]).unwrap();
        let server = server.with_no_client_auth().with_single_cert(chain, key).unwrap();
        let ended = handshake(client, server);
        assert!(matches!(ended, Err(rustls::Error::PeerIncompatible(_))), "{ended:?}");
    }
}

fn pin_accepts(pin: &str, chain: &[CertificateDer<'_>], name: &str) -> bool {
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_millis(NOW.as_millis().unsigned_abs()));
    let name = ServerName::try_from(name.to_owned()).unwrap();
    PinnedAuthority::new(pin).verify_server_cert(&chain[0], &chain[1..], &name, &[], now).is_ok()
}

#[test]
fn only_the_pinned_authoritys_certificate_for_the_dialled_name_is_accepted() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let (chain, _) = authority.issue_server(&["127.0.0.1".into(), "cp.example".into()], NOW).unwrap();
    assert!(pin_accepts(&authority.digest(), &chain, "127.0.0.1"));
    assert!(pin_accepts(&authority.digest(), &chain, "cp.example"));
    assert!(!pin_accepts(&authority.digest(), &chain, "other.example"));
    assert!(!pin_accepts(&"00".repeat(32), &chain, "127.0.0.1"));
    // An impostor presents the pinned authority with a certificate of another one.
    let impostor = Authority::generate("cp-1", NOW).unwrap();
    let (forged, _) = impostor.issue_server(&["127.0.0.1".into()], NOW).unwrap();
    let mixed = [forged[0].clone(), authority.certificate().clone()];
    assert!(!pin_accepts(&authority.digest(), &mixed, "127.0.0.1"));
}

fn trusting(authorities: &[CertificateDer<'static>]) -> Arc<TrustedAuthorities> {
    TrustedAuthorities::new(authorities).unwrap()
}

#[test]
fn client_that_trusts_the_old_authority_accepts_servers_of_its_successor() {
    let first = Authority::generate("cp-1", now()).unwrap();
    let next = first.successor(now()).unwrap();
    let served = |by: &Authority| {
        let (chain, key) = by.issue_server(&["127.0.0.1".into()], now()).unwrap();
        api_server_config(ReloadableCertificate::new(chain, key).unwrap(), OldestTls::default()).unwrap()
    };
    let both = format!("{}{}", next.certificate_pem(), first.certificate_pem());
    for (trusted, name) in [(first.certificate_pem(), "old"), (next.certificate_pem(), "new"), (&both, "both")] {
        let ended = handshake(client_config(trusted.as_bytes()).unwrap(), served(&next));
        assert_eq!(ended, Ok(rustls::ProtocolVersion::TLSv1_3), "{name}");
    }
    for pinned in [&first, &next] {
        let ended = handshake(pinned_client_config(&pinned.digest()).unwrap(), served(&next));
        assert_eq!(ended, Ok(rustls::ProtocolVersion::TLSv1_3));
    }
    assert!(handshake(client_config(next.certificate_pem().as_bytes()).unwrap(), served(&first)).is_err());
    let untrusted = Authority::generate("cp-1", now()).unwrap().successor(now()).unwrap();
    assert!(handshake(client_config(first.certificate_pem().as_bytes()).unwrap(), served(&untrusted)).is_err());
}

#[test]
fn replaced_authorities_apply_to_the_next_handshake_of_a_listener() {
    let first = Authority::generate("cp-1", now()).unwrap();
    let next = first.successor(now()).unwrap();
    let trusted = trusting(first.certificates());
    let (chain, key) = next.issue_server(&["127.0.0.1".into()], now()).unwrap();
    let server = channel_server_config(ReloadableCertificate::new(chain, key).unwrap(), &trusted).unwrap();
    let replica = crate::ReplicaIdentity {
        control_plane: "cp-1".into(),
        replica: "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap(),
    };
    let client = |by: &Authority| {
        let (chain, key) = by.issue_replica(&replica, now()).unwrap();
        // One configuration for all handshakes: a resumed session would reuse the old certificate.
        node_client_config(next.certificates(), chain, key, ALPN_NODE).unwrap()
    };
    let (of_first, of_next) = (client(&first), client(&next));
    let mut results = Vec::new();
    let both = [next.certificate().clone(), first.certificate().clone()];
    for trusts in [first.certificates(), &both, next.certificates()] {
        trusted.replace(trusts).unwrap();
        let is_accepted = |client: &ClientConfig| handshake(client.clone(), server.clone()).is_ok();
        results.push((is_accepted(&of_first), is_accepted(&of_next)));
    }
    // While only the first authority is trusted, its successor is accepted through the certificate that the first issued for it.
    assert_eq!(results, [(true, true), (true, true), (false, true)]);
}

#[test]
fn replaced_authorities_apply_to_the_next_handshake_of_a_client() {
    let first = Authority::generate("cp-1", now()).unwrap();
    let next = first.successor(now()).unwrap();
    let trusted = trusting(next.certificates());
    let (chain, key) = next.issue_server(&["127.0.0.1".into()], now()).unwrap();
    let client = replica_client_config(trusted.clone(), ReloadableCertificate::new(chain, key).unwrap()).unwrap();
    let (chain, key) = first.issue_server(&["127.0.0.1".into()], now()).unwrap();
    let both = trusting(&[next.certificate().clone(), first.certificate().clone()]);
    let server = replica_server_config(ReloadableCertificate::new(chain, key).unwrap(), &both).unwrap();
    // Server certificates are not valid for clients, so both handshakes fail; different errors show whether the authority was accepted.
    let unknown = handshake(client.clone(), server.clone()).unwrap_err();
    trusted.replace(first.certificates()).unwrap();
    let known = handshake(client, server).unwrap_err();
    assert_ne!(format!("{unknown}"), format!("{known}"));
}
