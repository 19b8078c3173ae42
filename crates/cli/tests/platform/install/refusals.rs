//! Refusals before anything is downloaded.

use std::{
    fs,
    io::Read,
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use gpuaas_model::{Code, InstallFault};

use super::machine::{Machine, SCRIPT, assert_refused, describe_output, found, shells, string_of};

/// Returns a valid enrollment string for an address where nothing listens.
fn valid_string() -> String {
    string_of("https://127.0.0.1:1", &"ab".repeat(32)).encode().expose().to_owned()
}

#[test]
fn unknown_damaged_and_newer_strings_get_distinct_codes() {
    let sound = valid_string();
    let (cut, short) = (&sound[..sound.len() - 3], &sound[..40]);
    let of_later = sound.replacen("gpuaas1.", "gpuaas2.", 1);
    for shell in shells() {
        for (text, code) in [
            ("", "install_string_missing"),
            ("  \n", "install_string_missing"),
            ("hello", "install_string_unknown"),
            (&sound[1..], "install_string_unknown"),
            (&of_later, "install_string_version"),
            (cut, "install_string_damaged"),
            (short, "install_string_damaged"),
            ("gpuaas1.$(touch x).12345678", "install_string_damaged"),
        ] {
            let machine = Machine::new().set("GPUAAS_ENROLL", text);
            assert_refused(&machine, &machine.run(shell, &[]), code, 4);
            assert_eq!(machine.tree(), Vec::<String>::new(), "{text}");
        }
    }
}

#[test]
fn one_changed_character_is_detected_anywhere() {
    let (sound, shells) = (valid_string(), shells());
    let prefix = "gpuaas1.".len();
    for at in prefix..sound.len() {
        let with = if &sound[at..=at] == "A" { "B" } else { "A" };
        let mut changed = sound.clone();
        changed.replace_range(at..=at, with);
        let machine = Machine::new().set("GPUAAS_ENROLL", &changed);
        assert_refused(&machine, &machine.run(shells[at % shells.len()], &[]), "install_string_damaged", 4);
    }
}

#[test]
fn string_with_an_unsafe_url_is_refused() {
    for url in
        ["http://127.0.0.1:1", "https://", "file:///etc/passwd", "https://a b", "https://x/\\n$(id)", "https://x';id;'"]
    {
        let string = string_of(url, &"ab".repeat(32)).encode().expose().to_owned();
        let machine = Machine::new().set("GPUAAS_ENROLL", &string);
        assert_refused(&machine, &machine.run(&["sh"], &[]), "install_string_version", 4);
    }
}

#[test]
fn missing_tool_is_named_and_wget_does_not_replace_curl() {
    for shell in shells() {
        for (without, words) in [
            (&["curl", "wget"][..], "curl is missing"),
            (&["curl"], "wget is installed, but cannot pin a key"),
            (&["base64"], "base64 is missing"),
            (&["sha256sum"], "sha256sum is missing"),
            (&["flock"], "flock is missing"),
        ] {
            if words.contains("wget") && found("wget").is_none() {
                println!("    NOT RUN: this machine has no wget");
                continue;
            }
            let machine = Machine::new().set("GPUAAS_ENROLL", &valid_string()).with_tools(without, &[]);
            let output = machine.run(shell, &[]);
            // A busybox that uses its built-in tools misses none.
            if shell[0] == "busybox" && !without.contains(&"curl") {
                continue;
            }
            assert_refused(&machine, &output, "install_tool_missing", 4);
            assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{}", describe_output(&output));
        }
    }
}

/// Runs the script on the real root, without `DESTDIR`. Without an enrollment string it changes nothing on any machine.
fn run_for_real(uid: Option<u32>) -> std::process::Output {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).env_remove("DESTDIR").env_remove("GPUAAS_ENROLL");
    if let Some(uid) = uid {
        command.uid(uid).gid(uid).current_dir("/");
    }
    command.output().expect("a shell")
}

#[test]
fn missing_root_and_missing_systemd_are_refused() {
    let machine = Machine::new();
    let is_root = fs::metadata("/proc/self").is_ok_and(|of| std::os::unix::fs::MetadataExt::uid(&of) == 0);
    assert_refused(&machine, &run_for_real(is_root.then_some(65_534)), "install_not_root", 6);
    if !is_root {
        println!("    NOT RUN: the refusals for root need root");
        return;
    }
    let (code, status) = match Path::new("/run/systemd/system").is_dir() {
        true => ("install_string_missing", 4),
        false => ("install_no_systemd", 4),
    };
    assert_refused(&machine, &run_for_real(None), code, status);
}

#[test]
fn truncated_script_runs_nothing() {
    let machine = Machine::new().set("GPUAAS_ENROLL", "hello");
    let whole = machine.run(&["sh"], &[]);
    assert_refused(&machine, &whole, "install_string_unknown", 4);
    let lines: Vec<usize> = SCRIPT.match_indices('\n').map(|(at, _)| at + 1).collect();
    let near_the_end = SCRIPT.len() - 60..SCRIPT.len() - 1;
    let cuts: Vec<usize> = lines[..lines.len() - 1].iter().copied().step_by(7).chain(near_the_end).collect();
    for shell in shells() {
        for &cut in cuts.iter().filter(|cut| SCRIPT.is_char_boundary(**cut)) {
            let output = machine.run_text(shell, &SCRIPT[..cut], &[]);
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(!error.contains("docs/errors") && output.stdout.is_empty(), "{cut}: {}", describe_output(&output));
        }
    }
}

#[test]
fn unknown_argument_is_refused() {
    let machine = Machine::new();
    let output = machine.run(&["sh"], &["--unistall"]);
    assert_eq!(output.status.code(), Some(2), "{}", describe_output(&output));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: "));
}

#[test]
fn concurrent_installation_is_refused_until_the_first_ends() {
    for shell in shells() {
        let machine = Machine::new().set("GPUAAS_ENROLL", &valid_string());
        let holds = "exec 9<\"$0\" && flock 9 && echo holds && exec sleep 600";
        let mut other = Command::new("sh");
        other.args(["-c", holds]).arg(machine.root()).stdout(Stdio::piped());
        let mut other = other.spawn().expect("a process");
        let mut printed = [0; 6];
        other.stdout.take().expect("a pipe").read_exact(&mut printed).expect("it holds the lock");
        assert_refused(&machine, &machine.run(shell, &[]), "install_busy", 5);
        assert_refused(&machine, &machine.run(shell, &["--uninstall"]), "install_busy", 5);
        other.kill().and_then(|()| other.wait()).expect("it ends");
        assert_refused(&machine, &machine.run(shell, &[]), "install_connection_refused", 7);
        assert_eq!(machine.tree(), Vec::<String>::new(), "the lock left files");
    }
}

#[test]
fn missing_temporary_folder_is_reported_by_name() {
    let machine = Machine::new().set("GPUAAS_ENROLL", &valid_string()).set("TMPDIR", "/nonexistent");
    let output = machine.run(&["sh"], &[]);
    assert_refused(&machine, &output, "install_folder_read_only", 4);
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nonexistent"), "{}", describe_output(&output));
}

/// Returns status and code of every `refuse STATUS CODE` in the script.
fn refusals() -> Vec<(u8, String)> {
    let words: Vec<&str> = SCRIPT.split_whitespace().collect();
    let calls = words.windows(3).filter(|words| words[0] == "refuse" && words[1].parse::<u8>().is_ok());
    calls.map(|words| (words[1].parse().expect("a number"), words[2].to_owned())).collect()
}

#[test]
fn every_refusal_of_the_script_has_a_known_code_and_status() {
    let refusals = refusals();
    assert!(refusals.len() > 25, "{refusals:?}");
    for (status, code) in &refusals {
        let known = match (code.parse::<InstallFault>(), code.parse::<Code>()) {
            (Ok(fault), _) => fault.exit(),
            (_, Ok(code)) => code.exit(),
            (Err(_), Err(_)) => panic!("unknown code {code}"),
        };
        assert_eq!(*status, known as u8, "{code}");
    }
    let by_agent = [InstallFault::NotEnrolled, InstallFault::AlreadyEnrolled, InstallFault::KernelTooOld];
    for fault in InstallFault::ALL.iter().filter(|fault| !by_agent.contains(fault)) {
        assert!(refusals.iter().any(|(_, code)| code == fault.as_str()), "the script never refuses with {fault}");
    }
}
