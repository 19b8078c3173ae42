//! Commands that destroy something ask on a terminal, need `--yes` elsewhere, and have a dry run.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
};

use gpuaas_api_types::{CreateProject, CreateServiceAccount};

use crate::world::{GPUAAS, Platform, token_request};

const UNUSED: &str = "0192f0c1-5f3e-7cc1-9a52-2f1f0a3b8f10";

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns the numbers of audit records, tokens that are not revoked, and events.
async fn traces(platform: &Platform) -> (usize, usize, usize) {
    let client = platform.client();
    let audit = client.list_audit(&gpuaas_client::AuditQuery::default()).await.expect("records").items.len();
    let tokens = client.list_tokens(None).await.expect("tokens").items;
    let events = client.list_events(None, 0).await.expect("events").items.len();
    (audit, tokens.iter().filter(|token| token.revoked_at.is_none()).count(), events)
}

#[test]
fn without_a_terminal_every_destructive_command_needs_yes() {
    let dev = Platform::start(0);
    let commands: [&[&str]; 18] = [
        &["allocation", "release", UNUSED],
        &["context", "delete", "dev"],
        &["keys", "revoke", "ed25519-1"],
        &["keys", "rotate", "authority", "--force", "grace", "--reason", "a test"],
        &["node", "delete", "gpu-1"],
        &["node", "reimage", "gpu-1"],
        &["node", "reset", "gpu-1"],
        &["node", "retire", "gpu-1"],
        &["project", "delete", "ml"],
        &["service-account", "delete", "ci"],
        &["token", "revoke", UNUSED],
        &["workload", "decommission", "train"],
        &["workload", "drain-member", "train", "agent-1"],
        &["workload", "remove-member", "train", "agent-1"],
        &["workload", "repair", "train", "--scope", "whole-runtime"],
        &["workload", "replace-member", "train", "agent-1", "--by", "gpu-2"],
        &["workload", "stop", "train"],
        &["workload", "revoke-access", UNUSED],
    ];
    dev.json(&["project", "list"]);
    assert!(dev.gpuaas(&["context", "set", "dev", "--url", "https://127.0.0.1:1"]).status.success());
    for (flag, value, why) in
        [("--url", "127.0.0.1:1", "does not begin with https://"), ("--ca-file", "absent.pem", "does not exist")]
    {
        let refused = dev.gpuaas(&["context", "set", "dev", flag, value]);
        let printed = errors(&refused);
        assert!(refused.status.code() == Some(2) && printed.contains(why), "{flag}: {printed}");
    }
    for command in commands {
        let output = dev.gpuaas(command);
        let printed = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {printed}");
        assert!(printed.contains("confirmation_required") && printed.contains("--yes"), "{command:?}: {printed}");
    }
    let of_json = dev.gpuaas(&["token", "revoke", UNUSED, "-o", "json"]);
    let error: serde_json::Value = serde_json::from_str(&errors(&of_json)).expect("JSON on stderr");
    assert_eq!((&error["code"], &error["exit_status"]), (&"confirmation_required".into(), &2.into()), "{error}");
    let accepting = dev.gpuaas(&["server", "accept-history", "--data-dir", &dev.file("data").to_string_lossy()]);
    assert_eq!(accepting.status.code(), Some(2), "{}", errors(&accepting));
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_check_everything_and_change_nothing() {
    let platform = Platform::start(1);
    let client = platform.client();
    client.create_project(&CreateProject { name: "ours".to_owned() }).await.expect("made");
    let ask = token_request("ci", "platform-operator", None);
    let token = client.create_token(&ask).await.expect("made").token.id;
    let account = CreateServiceAccount {
        name: "bot".into(),
        role: "viewer".into(),
        workload: None,
        project: Some("ours".into()),
    };
    client.create_service_account(&account).await.expect("made");
    let key = client.list_signing_keys().await.expect("keys").items.remove(0).id;
    let held = platform.json(&["allocation", "create", "--node", "demo-1", "--project", "ours", "--wait"]);
    let allocation = held["id"].as_str().expect("an id").to_owned();
    let before = traces(&platform).await;
    let cases: [(&[&str], &str); 5] = [
        (&["token", "revoke", &token], "Would revoke token ci ("),
        (&["service-account", "delete", "bot", "--project", "ours"], "Would delete service account bot."),
        (&["keys", "revoke", &key], "Would revoke task-signing key "),
        (&["allocation", "release", &allocation], "Would release demo-1 (allocation "),
        // --yes is no reason to act in a dry run.
        (&["token", "revoke", &token, "--yes"], "Would revoke token ci ("),
    ];
    for (command, expected) in cases {
        let output = platform.gpuaas(&[command, &["--dry-run"]].concat());
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(0), "{command:?}: {}", errors(&output));
        assert!(shown.starts_with(expected), "{command:?}: {shown}");
    }
    let own = client.whoami().await.expect("an answer").token;
    platform.json(&["context", "set", "dev"]);
    let details: [(&[&str], &str); 3] = [
        (&["token", "revoke", &own], "You use this token"),
        (&["keys", "revoke", &key], "Another key signs from then on."),
        (&["context", "delete", "dev"], "It is the current context"),
    ];
    for (command, expected) in details {
        let output = platform.gpuaas(&[command, &["--dry-run"]].concat());
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(shown.contains(expected), "{command:?}: {shown}");
    }
    let shown = platform.json(&["token", "revoke", &token, "--dry-run"]);
    assert!(shown["revoked_at"].is_string(), "the response is what it would be: {shown}");
    // What would be refused is refused; a refused dry run leaves no record either.
    let reset = ["node", "reset", "demo-1", "--force", "--reason", "a test", "--dry-run"];
    for (command, status) in [
        (&reset[..], 5),
        (&["node", "reimage", "demo-1", "--dry-run"], 5),
        (&["token", "revoke", UNUSED, "--dry-run"], 3),
    ] {
        let output = platform.gpuaas(command);
        assert_eq!(output.status.code(), Some(status), "{command:?}: {}", errors(&output));
    }
    assert_eq!(traces(&platform).await, before);
    assert_eq!(client.get_allocation(&allocation).await.expect("an allocation").state, "active");
    assert_eq!(client.get_node("demo-1").await.expect("a node").state, "active");
    assert_eq!(client.ping_node("demo-1").await.expect("its identity and the key are valid").task.state, "succeeded");

    let refused = platform.gpuaas(&["keys", "rotate", "authority", "--dry-run"]);
    assert_eq!(refused.status.code(), Some(2), "a rotation without --force destroys nothing: {}", errors(&refused));
}

/// Runs a command on a terminal (of util-linux's `script`) and answers its question.
fn on_terminal(platform: &Platform, command: &str, answer: &str) -> (Option<i32>, String) {
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &format!("{GPUAAS} {command}"), "/dev/null"]);
    script.env("GPUAAS_READY_FILE", &platform.ready_file).env("XDG_CONFIG_HOME", &platform.folder);
    let mut script = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script runs");
    // Kept open until the end: its end would be an answer, too.
    let mut input = script.stdin.take().expect("a pipe");
    input.write_all(answer.as_bytes()).expect("written");
    let output = script.wait_with_output().expect("it ends");
    drop(input);
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn terminal_is_asked_and_only_yes_confirms() {
    let dev = Platform::start(0);
    let token = dev.json(&["token", "create", "ci", "--role", "platform-operator"]);
    let id = token["token"]["id"].as_str().expect("an id").to_owned();
    let is_revoked = || {
        let tokens = dev.json(&["token", "list"]);
        let mut tokens = tokens.as_array().expect("a list").iter();
        tokens.any(|token| token["id"] == id.as_str() && token["revoked_at"].is_string())
    };
    let revoke = format!("token revoke {id}");
    let (status, shown) = on_terminal(&dev, &revoke, "n\n");
    assert!(shown.contains("Revoke token ci (") && shown.contains("cannot be restored"), "{shown}");
    assert!(shown.contains("not confirmed; nothing was changed"), "{shown}");
    assert_eq!((status, is_revoked()), (Some(1), false), "{shown}");
    let (status, shown) = on_terminal(&dev, &format!("token revoke {UNUSED}"), "y\n");
    assert!(status == Some(3) && !shown.contains("[y/N]"), "what does not exist is not asked about: {shown}");
    let (status, shown) = on_terminal(&dev, &format!("{revoke} --idempotency-key once"), "y\n");
    assert_eq!((status, is_revoked()), (Some(0), true), "{shown}");
}
