//! Lists and output of the command line: columns, names for scripts, prefixes of ids, `--watch` and completion.

use std::{
    io::{BufRead, BufReader},
    os::unix::process::ExitStatusExt,
    process::{Command, Output, Stdio},
};

use gpuaas_api_types::{CreateAllocation, CreateProject, ImportRelease, RegisterNode};
use gpuaas_client::ClientError;
use serde_json::Value;

use crate::{
    artifacts::release_of,
    world::{GPUAAS, Platform, interruptible_gpuaas, token_request},
};

/// Returns the standard output of a command that succeeds.
fn printed(platform: &Platform, arguments: &str) -> String {
    let ended = platform.gpuaas(&arguments.split(' ').collect::<Vec<_>>());
    assert!(ended.status.success(), "{arguments}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("text").trim_end().to_owned()
}

/// Returns the row of a table that contains a text.
fn row(platform: &Platform, arguments: &str, text: &str) -> String {
    let table = printed(platform, arguments);
    table.lines().find(|line| line.contains(text)).unwrap_or_else(|| panic!("{arguments}: {text}: {table}")).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_name_the_objects_of_their_entries_and_scripts_get_names_of_what_is_left() {
    let platform = Platform::start(1);
    let admin = platform.client();
    admin.create_project(&CreateProject { name: "ml".into() }).await.expect("made");
    let ask = CreateAllocation { project: "ml".into(), node: "demo-1".into() };
    let allocation = admin.create_allocation(&ask).await.expect("made").id;
    admin.ping_node("demo-1").await.expect("an answer");
    assert_eq!(printed(&platform, "allocation show demo-1 -o name"), allocation);
    let versions = printed(&platform, "version");
    assert!(versions.starts_with("gpuaas ") && versions.contains("\ncontrol plane "), "{versions}");
    let unknown = platform.gpuaas(&["node", "show", "nobody"]);
    let hint = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(hint.contains("see what exists: gpuaas node list"), "{hint}");
    let allocated = row(&platform, "allocation list", &allocation);
    assert!(allocated.contains(" ml ") && allocated.contains(" demo-1 "), "{allocated}");
    row(&platform, "task list", " demo-1 ");
    admin.ping_node("demo-1").await.expect("an answer");
    let tasks = platform.json(&["task", "list"]);
    let ids: Vec<_> = tasks.as_array().expect("a list").iter().map(|task| task["id"].as_str()).collect();
    assert!(ids.len() > 1 && ids.is_sorted_by(|newer, older| newer > older), "newest first: {ids:?}");
    let node = row(&platform, "node list", "demo-1");
    assert!(node.split_whitespace().any(|cell| cell == "ml"), "the project that holds it: {node}");
    row(&platform, "event list --project ml", &format!(" allocation/{allocation}"));
    assert!(
        row(&platform, "node list -o wide", "demo-1")
            .contains(&printed(&platform, "node show demo-1 -o jsonpath={.id}"))
    );

    for arguments in ["workload list", "workload list -o wide", "service-account list --project ml"] {
        let ended = platform.gpuaas(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(
            (String::from_utf8_lossy(&ended.stdout).as_ref(), String::from_utf8_lossy(&ended.stderr).as_ref()),
            ("", "nothing found\n"),
            "{arguments}"
        );
    }

    let secret = printed(&platform, "token create ci --role viewer --project ml -o name");
    assert_eq!(platform.client_with(&secret).whoami().await.expect("the secret is valid").name, "ci");
    let tokens = platform.json(&["token", "list"]);
    let token = tokens.as_array().expect("a list").iter().find(|token| token["name"] == "ci").expect("listed").clone();
    let id = token["id"].as_str().expect("an id");
    assert!(row(&platform, "token list", id).contains(" ml "));
    assert!(printed(&platform, "token list -o name").contains(id));
    printed(&platform, &format!("token revoke {id} --yes"));
    assert!(!printed(&platform, "token list -o name").contains(id), "a revoked token is listed");
    assert_eq!(printed(&platform, "node list -o jsonpath={.items[*].name}"), "demo-1");
    let refused = platform.gpuaas(&["node", "list", "-o", "jsonpath={.items"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn first_characters_of_an_id_find_only_visible_objects_and_names_precede_them() {
    let platform = Platform::start(2);
    let admin = platform.client();
    for (project, node) in [("one", "demo-1"), ("two", "demo-2")] {
        admin.create_project(&CreateProject { name: project.into() }).await.expect("made");
        let ask = CreateAllocation { project: project.into(), node: node.into() };
        admin.create_allocation(&ask).await.expect("made");
    }
    let allocations = admin.list_allocations(None, None).await.expect("listed").items;
    let (one, two) = (&allocations[0].id, &allocations[1].id);
    let prefix = &one[..one.len() - 4];
    assert_eq!(admin.get_allocation(prefix).await.expect("found").id, *one);

    let common: String = one.chars().zip(two.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    let refused = platform.gpuaas(&["allocation", "show", &common]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{words}");
    assert!(words.contains("id_ambiguous") && words.contains(one) && words.contains(two), "{words}");
    assert_eq!(platform.gpuaas(&["allocation", "show", &one[..3]]).status.code(), Some(3), "too short");

    let ask = token_request("member", "viewer", Some("two"));
    let member = platform.client_with(&admin.create_token(&ask).await.expect("made").secret);
    assert_eq!(member.get_allocation(&common).await.expect("its own is the only one it sees").id, *two);
    assert!(member.get_allocation(prefix).await.is_err(), "an allocation of another project was found");
    let node = admin.get_node("demo-1").await.expect("a node").id;
    assert!(member.get_node(&node[..node.len() - 2]).await.is_err(), "a node of another project was found");
    // By name.
    let hidden = member.get_node("demo-1").await.expect_err("another's");
    assert_eq!(hidden.exit() as u8, 3);
    let ClientError::Problem(hidden) = hidden else { panic!("{hidden:?}") };
    assert_eq!(hidden.next.as_deref(), Some("see the nodes of the project: gpuaas allocation list"));
    assert_eq!(member.list_allocations(Some("one".into()), None).await.expect_err("another's").exit() as u8, 3);

    let name = node[..4].to_owned();
    admin.register_node(&RegisterNode { name: name.clone(), ..RegisterNode::default() }).await.expect("registered");
    assert_eq!(admin.get_node(&name).await.expect("found").name, name);
}

#[tokio::test(flavor = "multi_thread")]
async fn watched_list_prints_what_changes_until_it_is_interrupted() {
    let platform = Platform::start(1);
    let mut watching = interruptible_gpuaas()
        .args(["node", "list", "--watch", "-o", "json"])
        .env("GPUAAS_READY_FILE", &platform.ready_file)
        .env("XDG_CONFIG_HOME", &platform.folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gpuaas runs");
    let mut lines = BufReader::new(watching.stdout.take().expect("piped")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    assert_eq!(next()["name"], "demo-1");
    let ask = RegisterNode { name: "gpu-09".into(), ..RegisterNode::default() };
    platform.client().register_node(&ask).await.expect("registered");
    while next()["name"] != "gpu-09" {}
    let sent = Command::new("kill").args(["-INT", &watching.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    let Output { status, stderr, .. } = watching.wait_with_output().expect("it ends");
    assert_eq!((status.signal(), String::from_utf8_lossy(&stderr).as_ref()), (Some(2), ""));

    let refused = platform.gpuaas(&["operation", "list", "--watch"]);
    assert_eq!(refused.status.code(), Some(2), "a platform token must name the project");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--project"));
}

#[tokio::test(flavor = "multi_thread")]
async fn followed_list_shows_whole_ids_on_a_narrow_terminal() {
    let platform = Platform::start(1);
    let client = platform.client();
    client.create_project(&CreateProject { name: "ml".into() }).await.expect("made");
    let ask = CreateAllocation { project: "ml".into(), node: "demo-1".into() };
    let id = client.create_allocation(&ask).await.expect("made").id;
    let row = |arguments: &str| {
        let mut list = Command::new("script");
        list.args(["-qfec", &format!("stty cols 50 && exec {GPUAAS} allocation list --project ml {arguments}")]);
        list.arg("/dev/null").env("GPUAAS_READY_FILE", &platform.ready_file).env("XDG_CONFIG_HOME", &platform.folder);
        let mut list = list.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("script runs");
        let row = BufReader::new(list.stdout.take().expect("piped")).lines().nth(1).expect("a row").expect("text");
        list.kill().expect("killed");
        list.wait().expect("it ends");
        row
    };
    let watched = row("--watch");
    assert!(watched.starts_with(&id), "{watched}");
    assert!(!row("").contains(&id), "the terminal is not narrow");
}

/// Returns what a shell offers for the last word of a command line.
fn offered(platform: &Platform, words: &[&str], environment: &[(&str, &str)]) -> String {
    let ended = Command::new(GPUAAS)
        .args(["--", "gpuaas"])
        .args(words)
        .env("COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", words.len().to_string())
        .env("_CLAP_IFS", "\n")
        .env("GPUAAS_READY_FILE", &platform.ready_file)
        .env("XDG_CONFIG_HOME", &platform.folder)
        .envs(environment.iter().copied())
        .output()
        .expect("gpuaas runs");
    assert!(ended.status.success() && ended.stderr.is_empty(), "{}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_gets_the_names_of_objects_and_silence_without_a_control_plane() {
    let platform = Platform::start(1);
    platform.client().create_project(&CreateProject { name: "ml".into() }).await.expect("made");
    assert_eq!(offered(&platform, &["node", "show", "demo"], &[]), "demo-1");
    assert_eq!(offered(&platform, &["workload", "list", "--project", "m"], &[]), "ml");
    assert_eq!(offered(&platform, &["node", "list", "-o", "wi"], &[]), "wide");
    let flags = offered(&platform, &["node", "list", "--"], &[]);
    for flag in ["--project", "--output", "--context", "--state"] {
        assert!(flags.lines().any(|offered| offered == flag), "{flag} is not among {flags}");
    }
    let source = release_of(&platform.folder, "v1.0.0", &[]).to_string_lossy().into_owned();
    let ask = ImportRelease { app: "rke2".into(), version: None, source, sums_sha256: None, signature: None };
    platform.client().import_artifacts(&ask).await.expect("imported");
    assert_eq!(offered(&platform, &["workload", "deploy", "rke2", "--version", "v"], &[]), "v1.0.0");
    let elsewhere = [("GPUAAS_SERVER", "https://127.0.0.1:9")];
    assert_eq!(offered(&platform, &["node", "show", "demo"], &elsewhere), "");
    let script = printed(&platform, "completion bash");
    assert!(script.contains("COMPLETE") && script.contains("gpuaas"), "{script}");
}
