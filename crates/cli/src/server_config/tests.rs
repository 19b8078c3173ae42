use super::*;
use crate::cli::Command as Verb;

fn parsed(file: &str, more: &[&str]) -> Result<(Cli, Vec<Setting>), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("server.toml");
    std::fs::write(&path, file).expect("written");
    let mut arguments: Vec<OsString> = vec!["gpuaas".into(), "server".into(), "--config".into(), path.into()];
    arguments.extend(more.iter().map(OsString::from));
    parse(arguments).map_err(|rejected| match rejected {
        Rejected::Usage(error) => error.to_string(),
        Rejected::Settings { error, .. } => {
            let lines = error.mistakes.iter().map(|mistake| format!("{}: {}", mistake.at, mistake.detail));
            lines.collect::<Vec<_>>().join("\n").replace(&format!("{}/", folder.path().display()), "")
        }
    })
}

#[test]
fn flag_overrides_file_and_file_overrides_default() {
    let file = "listen = \"127.0.0.1:1\"\nchannel-listen = \"127.0.0.1:2\"\nrke2-start-deadline = \"20m\"\n";
    let (cli, settings) = parsed(file, &["--listen", "127.0.0.1:9"]).expect("valid settings");
    let Verb::Server(server) = cli.command else { panic!("another command") };
    assert_eq!((server.listen.port(), server.channel_listen.port()), (9, 2));
    assert_eq!(server.rke2_start_deadline.as_secs(), 1_200);
    let from = |key: &str| settings.iter().find(|setting| setting.key == key).map(|setting| setting.from.as_str());
    assert_eq!(
        (from("listen"), from("channel-listen"), from("data-dir")),
        (Some("flag"), Some("file"), Some("default"))
    );
}

#[test]
fn unknown_keys_and_bad_values_are_named() {
    for (file, word) in [
        ("lisen = \"127.0.0.1:1\"", "server.toml:1: lisen is not a setting; did you mean listen?"),
        ("colour = true", "colour is not a setting; use one of data-dir"),
        ("ready-file = \"x\"", "ready-file is not a setting"),
        ("token = \"x\"", "token is not a setting"),
        ("listen = \"nowhere\"", "nowhere"),
        ("listen = [1]", "listen must be a string"),
        ("artifacts-dir = \"artifacts\"", "\"artifacts\" is not an absolute path"),
        ("data-dir = 3", "server.toml:1: data-dir must be a string: write \"3\""),
        ("public-url = true", "public-url must be a string"),
        ("rke2-start-deadline = \"soon\"", "soon"),
        ("keep-operatons = \"90d\"", "keep-operatons is not a setting"),
        ("keep-events = \"9s\"", "at least 10 s"),
        ("keep-audit = \"for ever\"", "nor forever"),
        ("listen", "server.toml"),
    ] {
        let refused = parsed(file, &[]).expect_err(file);
        assert!(refused.contains(word), "{file}: {refused}");
    }
    let missing = parse(["gpuaas", "server", "--config", "/nonexistent"].map(OsString::from));
    let Err(Rejected::Settings { error, .. }) = missing else { panic!("{missing:?}") };
    assert!(error.mistakes[0].at == "/nonexistent" && error.mistakes[0].detail.starts_with("cannot be read"));
}

#[test]
fn every_mistake_is_found_at_once_with_its_line_or_flag() {
    let file = "# settings\nkeep-audit = \"5x\"\n\nlisten\nlisen = \"127.0.0.1:1\"\nlog-format = \"xml\"\n";
    let refused = parsed(file, &["--listen", "nowhere", "--requests-per-token=0"]).expect_err("six mistakes");
    insta::assert_snapshot!(refused, @r#"
    server.toml:2: "5x" is neither a duration such as 90d or 36h nor forever
    server.toml:4: key with no value, expected `=`
    server.toml:5: lisen is not a setting; did you mean listen?
    server.toml:6: "xml": use one of text, json
    --listen: "nowhere" is not ADDRESS:PORT, for example 127.0.0.1:7443
    --requests-per-token: "0": number would be zero for non-zero type
    "#);
    let (_, settings) = parsed("\nkeep-audit = \"5d\"\n", &["--listen", "127.0.0.1:9"]).expect("valid settings");
    let at = |key: &str| settings.iter().find(|of| of.key == key).and_then(|of| of.at.clone()).unwrap_or_default();
    assert!(at("keep-audit").ends_with("server.toml:2"), "{}", at("keep-audit"));
    assert_eq!((at("listen").as_str(), at("data-dir").as_str()), ("--listen", ""));
}

#[test]
fn lists_are_separated_by_commas_and_switches_are_true_or_false() {
    const KEY: &str = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
    let file = format!(
        "release-private-networks = \"10.4.0.0/16,fd00::/8\"\nrelease-trusted-keys = \"{KEY}\"\nallow-unverified-releases = true\n"
    );
    let (cli, settings) = parsed(&file, &[]).expect("valid settings");
    let Verb::Server(server) = cli.command else { panic!("another command") };
    assert_eq!((server.release_private_networks.len(), server.release_trusted_keys.len()), (2, 1));
    assert!(server.allow_unverified_releases);
    let value = |key: &str| settings.iter().find(|setting| setting.key == key).and_then(|of| of.value.clone());
    assert_eq!(value("release-private-networks").as_deref(), Some("10.4.0.0/16,fd00::/8"));
    let (cli, _) = parsed(&file, &["--allow-unverified-releases=false"]).expect("valid settings");
    let Verb::Server(server) = cli.command else { panic!("another command") };
    assert!(!server.allow_unverified_releases, "the flag does not override the file");
    let (cli, _) = parsed("", &[]).expect("valid settings");
    let Verb::Server(server) = cli.command else { panic!("another command") };
    assert!(!server.allow_unverified_releases && server.release_trusted_keys.is_empty());
    for (file, word) in [
        ("release-private-networks = \"10.4.0.0/99\"", "10.4.0.0/99"),
        ("release-trusted-keys = \"RWQ\"", "RWQ"),
        ("allow-unverified-releases = \"perhaps\"", "perhaps"),
    ] {
        let refused = parsed(file, &[]).expect_err(file);
        assert!(refused.contains(word), "{file}: {refused}");
    }
}

#[test]
fn other_commands_have_no_settings() {
    let (_, settings) = parse(["gpuaas", "whoami"].map(OsString::from)).expect("valid settings");
    assert_eq!(settings, []);
}
