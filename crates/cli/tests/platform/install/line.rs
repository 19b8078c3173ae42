//! The command that an operator runs on a machine, and its downloads.

use std::process::{Command, Output};

use http::Method;
use serde_json::Value;

use super::machine::{SCRIPT, describe_output, found, write_package};
use crate::{raw::send, world::Platform};

/// Runs the part of the command before the pipe.
fn fetched(command: &str) -> Output {
    let fetch = command.split_once(" | ").expect("a pipe").0;
    let mut shell = Command::new("sh");
    for name in ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"] {
        shell.env_remove(name);
    }
    shell.args(["-c", fetch]).output().expect("a shell")
}

fn registered(platform: &Platform, name: &str) -> Value {
    platform.json(&["node", "register", name])["enrollment"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn install_command_downloads_only_from_the_pinned_server() {
    let platform = Platform::start(0);
    let enrollment = registered(&platform, "gpu-07");
    let (command, string) =
        (enrollment["command"].as_str().expect("a line"), enrollment["string"].as_str().expect("one"));
    assert!(command.ends_with(&format!("/install.sh | GPUAAS_ENROLL={string} sh")), "{command}");
    if found("curl").is_none() {
        println!("    NOT RUN: this machine has no curl");
        return;
    }
    let script = fetched(command);
    assert!(script.status.success() && script.stdout == SCRIPT.as_bytes(), "{}", describe_output(&script));
    let other = Platform::start(0);
    let pin = |command: &str| command.split('\'').nth(1).expect("a pin").to_owned();
    let foreign = registered(&other, "gpu-07")["command"].as_str().map(pin).expect("a pin");
    let foreign = fetched(&command.replace(&pin(command), &foreign));
    assert_eq!((foreign.status.code(), foreign.stdout.len()), (Some(90), 0), "{}", describe_output(&foreign));
}

#[tokio::test(flavor = "multi_thread")]
async fn install_command_survives_a_restart_of_the_control_plane() {
    let mut platform = Platform::start(0);
    let pin = |enrollment: &Value| {
        enrollment["command"].as_str().and_then(|line| line.split('\'').nth(1)).expect("a pin").to_owned()
    };
    let before = pin(&registered(&platform, "gpu-07"));
    platform.restart(0);
    assert_eq!(pin(&registered(&platform, "gpu-08")), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn register_prints_the_command_to_stdout_and_messages_to_stderr() {
    let platform = Platform::start(0);
    let output = platform.gpuaas(&["node", "register", "gpu-07"]);
    let line = String::from_utf8(output.stdout).expect("a text");
    assert!(line.starts_with("curl -fsSk --pinnedpubkey 'sha256//") && line.lines().count() == 1, "{line}");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        words.contains("Node gpu-07 is registered. On its machine, as root") && !words.contains("gpuaas1."),
        "{words}"
    );
    assert!(!words.contains('\u{1b}'), "a clipboard sequence was written without a terminal");
}

/// Requests `install_script`, `install_authority` and `install_package` without a token.
#[tokio::test(flavor = "multi_thread")]
async fn listed_packages_are_served_without_a_token() {
    let packages = tempfile::tempdir().expect("a folder");
    let name = write_package(packages.path(), "amd64", "x");
    std::fs::write(packages.path().join("secret"), "").expect("written");
    let folder = packages.path().to_str().expect("a text").to_owned();
    let platform = Platform::start_with(0, &[("GPUAAS_PACKAGES_DIR", &folder)]);
    let ask = async |path: &str| send(&platform, Method::GET, path, &[], "").await;
    for (path, media_type) in [
        ("/install.sh".to_owned(), "text/plain; charset=utf-8"),
        ("/install/authority.pem".to_owned(), "application/pem-certificate-chain"),
        ("/install/packages/SHA256SUMS".to_owned(), "application/octet-stream"),
        (format!("/install/packages/{name}"), "application/octet-stream"),
    ] {
        let answer = ask(&path).await;
        let content_type = answer.headers["content-type"].to_str().expect("text");
        assert_eq!((answer.status, content_type), (200, media_type), "{path}");
    }
    let length = ask(&format!("/install/packages/{name}")).await.headers["content-length"].clone();
    assert_eq!(length, std::fs::metadata(packages.path().join(name)).expect("a file").len().to_string());
    for path in ["secret", "..", "..%2f..%2fetc%2fpasswd", "SHA256SUMS.minisig", "%00", ".", "none.deb"] {
        let answer = ask(&format!("/install/packages/{path}")).await;
        assert_eq!((answer.status, answer.code()), (404, "not_found"), "{path}: {answer:?}");
    }
    let bare = Platform::start_with(0, &[("GPUAAS_PACKAGES_DIR", "/nonexistent")]);
    let answer = send(&bare, Method::GET, "/install/packages/SHA256SUMS", &[], "").await;
    assert_eq!((answer.status, answer.code()), (404, "packages_missing"), "{answer:?}");
    assert!(answer.body["next"].as_str().is_some_and(|next| next.contains("--packages-dir")), "{answer:?}");
}
