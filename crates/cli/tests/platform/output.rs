//! Where commands write: the result to stdout, as one document with `-o json`, and everything else to stderr.

use std::{
    fs::File,
    process::{Command, Output},
};

use crate::world::{GPUAAS, Platform};

const CREATE_ACCOUNT: [&str; 6] = ["service-account", "create", "ci", "--role", "viewer", "--project=ml"];

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn result_is_one_document_on_stdout_and_hints_are_on_stderr() {
    let platform = Platform::start(0);
    for arguments in [
        &["project", "create", "ml"][..],
        &CREATE_ACCOUNT,
        &["service-account", "token", "ci", "--project", "ml"],
        &["node", "register", "gpu-1"],
        &["node", "retire", "gpu-1", "--yes"],
        &["token", "create", "ada", "--role", "viewer", "--project", "ml"],
        &["context", "set", "cp"],
        &["context", "use", "cp"],
        &["context", "delete", "cp", "--yes"],
    ] {
        let ended = platform.gpuaas(&[arguments, &["-o", "json"]].concat());
        let result = serde_json::from_slice::<serde_json::Value>(&ended.stdout);
        assert!(result.is_ok_and(|of| of.is_object()), "{arguments:?}: {}", text(&ended.stdout));
        assert_eq!(text(&ended.stderr), "", "{arguments:?}");
    }
    let deleted = platform.gpuaas(&["service-account", "delete", "ci", "--project", "ml", "--yes"]);
    assert_eq!(text(&deleted.stdout), "Service account ci is deleted.\n");
    let created = platform.gpuaas(&CREATE_ACCOUNT);
    assert_eq!(text(&created.stdout), "Service account ci is created.\n");
    assert_eq!(text(&created.stderr), "create a token: gpuaas service-account token ci --project ml\n");
}

#[test]
fn output_to_a_full_disk_is_an_error_and_never_a_panic() {
    let platform = Platform::start(1);
    let run = |arguments: &str| {
        let mut command = Command::new(GPUAAS);
        command.args(arguments.split(' ')).env("XDG_CONFIG_HOME", &platform.folder);
        command.env("GPUAAS_READY_FILE", &platform.ready_file);
        command
    };
    let full = || File::options().write(true).open("/dev/full").expect("a device");
    for arguments in [
        "--help",
        "--version",
        "node --help",
        "flags",
        "completion bash",
        "explain",
        "explain not_found",
        "version",
        "whoami",
        "whoami -o yaml",
        "token create ci --role platform-operator",
        "node show demo-1",
        "node show demo-1 --etag",
        "node list",
        "node list -o json",
        "node list -o yaml",
        "node list -o name",
        "node list -o jsonpath={.items[0].name}",
        "node list --watch",
        "audit list",
        "event list",
        "event watch --after 0",
        "server check-config",
    ] {
        let ended = run(arguments).stdout(full()).output().expect("gpuaas runs");
        let printed = text(&ended.stderr);
        let expected = "cannot write to standard output: No space left on device";
        assert!(printed.contains(expected) && !printed.contains("panicked"), "{arguments}: {printed}");
        assert_eq!(ended.status.code(), Some(1), "{arguments}: {printed}");
    }
    let unreported = run("node show nobody").stderr(full()).output().expect("gpuaas runs");
    assert_eq!(unreported.status.code(), Some(3));
}

#[test]
fn global_flags_have_escape_codes_only_with_colours() {
    for (color, has_escapes) in [("auto", false), ("never", false), ("always", true)] {
        let printed = Command::new(GPUAAS).args(["flags", "--color", color]).output().expect("gpuaas runs").stdout;
        assert_eq!(text(&printed).contains('\u{1b}'), has_escapes, "{color}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn contradictory_input_is_refused_and_empty_variables_count_as_unset() {
    let platform = Platform::start(0);
    let run = |arguments: &[&str], environment: &[(&str, &str)]| -> Output {
        let mut command = Command::new(GPUAAS);
        command.args(arguments).env("XDG_CONFIG_HOME", platform.file("config"));
        command.env("GPUAAS_READY_FILE", &platform.ready_file).envs(environment.iter().copied());
        command.output().expect("gpuaas runs")
    };
    assert!(run(&["project", "create", "ml"], &[]).status.success());
    let role = ["token", "create", "ada", "--role", "platform-admin"];
    let refused = run(&[&role[..], &["--project", "ml"]].concat(), &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("argument: --project"), "{}", text(&refused.stderr));
    let exported = run(&role, &[("GPUAAS_PROJECT", "ml")]);
    assert!(exported.status.success(), "{}", text(&exported.stderr));
    let reversed = run(&["audit", "list", "--since", "1m", "--until", "5m"], &[]);
    assert_eq!(reversed.status.code(), Some(2), "{}", text(&reversed.stderr));

    let nodes = ["--server", "demo-9", "--agent", "demo-8", "--project", "ml"];
    let unknown = run(&[&["workload", "deploy", "rke2", "--name", "x"][..], &nodes].concat(), &[]);
    assert_eq!(unknown.status.code(), Some(3), "{}", text(&unknown.stderr));
    assert!(text(&unknown.stderr).starts_with("error: --server demo-9, --agent demo-8: the project holds no node"));

    let unknown = run(&["service-account", "token", "cj", "--project", "ml"], &[]);
    let hint = "see what exists: gpuaas service-account list --project ml";
    assert!(text(&unknown.stderr).contains(hint), "{}", text(&unknown.stderr));
    assert!(run(&["token", "create", "bob", "--role", "viewer", "--project", "ml"], &[]).status.success());
    let used = run(&["project", "delete", "ml", "--yes"], &[]);
    assert!(text(&used.stderr).contains("remove them first: gpuaas token revoke ID\n"), "{}", text(&used.stderr));
    let unknown = run(&["project", "delete", "nobody", "--yes"], &[]);
    assert!(text(&unknown.stderr).contains("gpuaas project list\n"), "{}", text(&unknown.stderr));

    let empty = ["GPUAAS_PROJECT", "GPUAAS_SERVER", "GPUAAS_TOKEN", "GPUAAS_CONTEXT", "GPUAAS_CA_FILE"];
    let ended = run(&role, &empty.map(|name| (name, "")));
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(run(&["whoami"], &[("GPUAAS_READY_FILE", "")]).status.code() == Some(2), "there is no context either");

    let ready = platform.ready_file.to_string_lossy().into_owned();
    let refused = run(&["server", "restore", &ready, "--data-dir", &platform.file("other").to_string_lossy()], &[]);
    let shown = text(&refused.stderr);
    assert!(shown.starts_with(&format!("error: {ready} is not a backup of GPUaaS (backup_invalid)\n")), "{shown}");
}
