//! Every exit status of the command line, as `docs/cli.md` lists them, and the error pages that the control plane serves.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use gpuaas_model::ExitStatus;

use crate::{
    raw::write_then_read,
    world::{GPUAAS, Platform, interruptible_gpuaas},
};

/// Returns the exit status as a shell reports it.
fn number(status: std::process::ExitStatus) -> Option<i32> {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal))
}

/// Returns the exit statuses of commands that end with `status`, each with its description.
fn ends(platform: &Platform, status: ExitStatus) -> Vec<(String, Option<i32>)> {
    let run = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = Command::new(GPUAAS);
        command.args(arguments).env("XDG_CONFIG_HOME", platform.file("config"));
        command.envs(environment.iter().copied()).stdout(Stdio::null()).stderr(Stdio::null());
        (arguments.join(" "), number(command.status().expect("gpuaas runs")))
    };
    let ready = platform.ready_file.to_str().expect("a text").to_owned();
    let with = |arguments: &[&str]| run(arguments, &[("GPUAAS_READY_FILE", &ready)]);
    let used = platform.ready()["url"].as_str().expect("a URL").trim_start_matches("https://").to_owned();
    let data_dir = platform.file("other").to_str().expect("a text").to_owned();
    match status {
        ExitStatus::Done => vec![run(&["version"], &[]), run(&["explain", "rke2_residue"], &[])],
        ExitStatus::Failed => vec![("version > /dev/full".to_owned(), printed_to_a_full_disk())],
        ExitStatus::Usage => vec![
            run(&["node", "list", "--no-such-flag"], &[]),
            run(&["server", "--config", "/no/such/file"], &[]),
            run(&["server", "--timeout", "1m", "--data-dir", &data_dir], &[]),
            run(&["dev", "--timeout", "1m", "--data-dir", &data_dir], &[]),
            run(&["dev", "--replicas", "2", "--data-dir", &data_dir], &[]),
            run(&["man", "/proc/no-directory"], &[]),
            run(&["server", "backup", "/no/such/backup.tar", "--data-dir", &data_dir], &[]),
            run(&["server", "restore", "/no/such/backup.tar", "--data-dir", &data_dir], &[]),
            with(&["support", "bundle", "--file", "/no/such/bundle.tar.gz"]),
            run(&["context", "list"], &[("XDG_CONFIG_HOME", ""), ("HOME", "")]),
            run(&["node", "list"], &[]),
            run(&["node", "list", "--ready-file", "/no/such/file"], &[]),
            with(&["node", "list", "--ca-file", "/no/such/file"]),
            with(&["node", "register", "GPU_07"]),
            with(&["node", "show", ""]),
            with(&["service-account", "delete", "", "--yes"]),
            with(&["workload", "members", ""]),
            with(&["operation", "list", "--state", "nothing"]),
            with(&["operation", "list", "-o", "nothing"]),
        ],
        ExitStatus::NotFound => vec![
            with(&["node", "show", "nobody"]),
            run(&["node", "list", "--context", "nobody"], &[]),
            run(&["context", "use", "nobody"], &[]),
            run(&["explain", "no_such_code"], &[]),
        ],
        ExitStatus::Refused => vec![with(&["workload", "deploy", "rke2", "--name", "x", "--project", "one"])],
        ExitStatus::Conflict => vec![
            run(&["server", "--listen", &used, "--channel-listen", "127.0.0.1:0", "--data-dir", &data_dir], &[]),
            run(&["dev", "--nodes", "0", "--listen", &used, "--data-dir", &data_dir], &[]),
        ],
        ExitStatus::Unauthorized => {
            vec![run(&["whoami"], &[("GPUAAS_READY_FILE", &ready), ("GPUAAS_TOKEN", "gpuaas_wrong")])]
        }
        ExitStatus::Unreachable => vec![with(&["whoami", "--url", "https://127.0.0.1:1"])],
        ExitStatus::TimedOut => vec![with(&["event", "watch", "--timeout", "1s"])],
        // Only the agent exits with it: `damaged_files.rs`.
        ExitStatus::Damaged => Vec::new(),
        ExitStatus::Interrupted => vec![("event watch".to_owned(), interrupted(&ready))],
        ExitStatus::PipeClosed => vec![("completion bash".to_owned(), piped_to_nothing())],
    }
}

/// Sends SIGINT to a command that follows events, once it has printed one.
fn interrupted(ready: &str) -> Option<i32> {
    let mut command = interruptible_gpuaas();
    command.args(["event", "watch", "--after", "0"]).env("GPUAAS_READY_FILE", ready).stdout(Stdio::piped());
    let mut child = command.spawn().expect("gpuaas runs");
    let mut line = String::new();
    // Kept until the end: a closed pipe would end the command, too.
    let mut output = BufReader::new(child.stdout.take().expect("piped"));
    output.read_line(&mut line).expect("an event");
    let sent = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill runs");
    assert!(sent.success() && !line.is_empty());
    number(child.wait().expect("a child"))
}

fn printed_to_a_full_disk() -> Option<i32> {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
    number(Command::new(GPUAAS).arg("version").stdout(full).stderr(Stdio::null()).status().expect("gpuaas runs"))
}

fn piped_to_nothing() -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let ended = Command::new(GPUAAS).args(["completion", "bash"]).stdout(writer).stderr(Stdio::piped()).output();
    let ended = ended.expect("gpuaas runs");
    assert!(ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
    number(ended.status)
}

#[test]
fn every_exit_status_of_the_table_is_that_of_its_commands() {
    let platform = Platform::start(0);
    platform.json(&["project", "create", "one"]);
    for (status, meaning) in ExitStatus::TABLE {
        for (command, ended) in ends(&platform, *status) {
            assert_eq!(ended, Some(*status as i32), "gpuaas {command}: {meaning}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn error_names_an_address_that_serves_its_page_without_a_token() {
    let platform = Platform::start(0);
    let output = platform.gpuaas(&["node", "show", "nobody"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let url = platform.ready()["url"].as_str().expect("a URL").to_owned();
    let path = "/docs/errors/not_found";
    assert!(error.contains(&format!("see {url}{path} · ")), "{error}");
    let response = write_then_read(&platform, &format!("GET {path} HTTP/1.1\r\n"), b"").await;
    let explained = platform.gpuaas(&["explain", "not_found"]);
    let page = String::from_utf8_lossy(&explained.stdout).trim().to_owned();
    assert!(response.starts_with("HTTP/1.1 200 ") && response.contains(&page), "{response}");
    assert!(response.to_lowercase().contains("cache-control: public, max-age="), "{response}");
}
