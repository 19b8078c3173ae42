//! `docs/recovery.md` and the page of each fault. `GPUAAS_UPDATE_GOLDEN=1` writes `docs/recovery.md`.

use std::{
    collections::BTreeSet,
    fmt::Write,
    path::{Path, PathBuf},
};

use gpuaas_app_rke2::{Counts, FAULTS, FaultRow, OTHER_FAULTS, Proof, Subject};
use gpuaas_planner::recovery::SITUATIONS;

/// A member as the page names it.
fn subject(is_server: bool, is_deployed: bool) -> Subject<'static> {
    Subject { workload: "NAME", member: "MEMBER", machine: "NODE", is_server, is_deployed, is_leaving: false }
}

fn command(row: &FaultRow, is_server: bool, is_deployed: bool) -> String {
    let of = subject(is_server, is_deployed);
    row.remedy(&of).next(&of).command.expect("every fault of RKE2 has a command")
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs")
}

/// The rows of the table, one for each code, as some codes have two kinds of lines.
fn rows() -> Vec<&'static FaultRow> {
    let mut seen = BTreeSet::new();
    FAULTS.iter().chain(OTHER_FAULTS).filter(|row| seen.insert(row.code)).collect()
}

fn situations() -> String {
    let mut text = "| situation | `recovery` | fault | who acts | what they do | offered |\n".to_owned();
    text += "| --- | --- | --- | --- | --- | --- |\n";
    for of in SITUATIONS {
        let class = of.class.map_or(String::new(), |class| format!("`{class}`"));
        let offers: Vec<String> = of.offers.iter().map(|offer| format!("`{}`", offer.command())).collect();
        let (who, offers) = (of.who.as_str(), offers.join(", "));
        writeln!(text, "| {} | `{}` | {class} | {who} | {} | {offers} |", of.what, of.recovery, of.cure)
            .expect("writing to a String succeeds");
    }
    text
}

fn faults() -> String {
    let mut text =
        "| fault | what happened | class | who acts | next | why |\n| --- | --- | --- | --- | --- | --- |\n".to_owned();
    for row in rows() {
        let deployed = row.remedy(&subject(false, true));
        writeln!(
            text,
            "| [{code}](errors/{code}.md) | {} | `{}` | {} | `{}` | {} |",
            row.summary,
            deployed.class(),
            deployed.who(),
            command(row, false, true),
            row.why,
            code = row.code,
        )
        .expect("writing to a String succeeds");
    }
    text
}

fn exceptions() -> String {
    let mut text = "| fault | class | who acts | next |\n| --- | --- | --- | --- |\n".to_owned();
    for row in rows() {
        let (deploying, deployed) = (row.remedy(&subject(false, false)), row.remedy(&subject(false, true)));
        if deploying.class() != deployed.class() || deploying.who() != deployed.who() {
            let command = command(row, false, false);
            writeln!(text, "| `{}` | `{}` | {} | `{command}` |", row.code, deploying.class(), deploying.who())
                .expect("writing to a String succeeds");
        }
    }
    text
}

#[test]
fn golden_recovery_page_matches_the_tables() {
    let text = format!(
        "# Recovery\n\nGenerated from the code; update it with `GPUAAS_UPDATE_GOLDEN=1 cargo test -p gpuaas-app-rke2 --test faults`.\n\n\
         ## Situations\n\n{}\n## Faults of RKE2\n\nThe commands are those for an agent of a workload that runs. For a server, \
         `gpuaas workload repair NAME --scope control-plane` replaces the repair of a member. Until the first deployment has ended \
         with a usable cluster, there is nothing to repair: then `gpuaas workload resume NAME` replaces it.\n\n{}\nUntil the first \
         deployment has ended with a usable cluster, these faults have another class, or another person acts:\n\n{}",
        situations(),
        faults(),
        exceptions()
    );
    let path = docs().join("recovery.md");
    if std::env::var_os("GPUAAS_UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).expect("the golden file can be written");
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "docs/recovery.md differs from the code");
}

#[test]
fn every_fault_has_a_page_with_its_symptoms_and_its_commands() {
    for row in rows() {
        let page = std::fs::read_to_string(docs().join(format!("errors/{}.md", row.code))).unwrap_or_default();
        // Lines of the page are wrapped.
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("**What happened.**") && page.contains("**What to do.**"), "docs/errors/{}.md", row.code);
        for is_server in [false, true] {
            for is_deployed in [false, true] {
                let command = command(row, is_server, is_deployed);
                let verb = command.split(' ').take(3).collect::<Vec<_>>().join(" ");
                assert!(page.contains(&verb), "docs/errors/{}.md does not offer {command}", row.code);
            }
        }
        for row in FAULTS.iter().filter(|of| of.code == row.code) {
            for symptom in row.symptoms {
                let symptom = symptom.split_whitespace().collect::<Vec<_>>().join(" ");
                assert!(page.contains(&format!("`{symptom}`")), "docs/errors/{}.md lacks `{symptom}`", row.code);
            }
        }
    }
}

#[test]
fn every_page_of_rke2_belongs_to_a_fault() {
    let known: BTreeSet<&str> = rows().iter().map(|row| row.code).collect();
    for entry in std::fs::read_dir(docs().join("errors")).expect("the error pages").flatten() {
        let name = entry.file_name().into_string().expect("a name");
        if let Some(code) = name.strip_suffix(".md").filter(|code| code.starts_with("rke2_")) {
            assert!(known.contains(code), "docs/errors/{name} explains no fault");
        }
    }
}

#[test]
fn next_action_is_a_step_that_its_reader_can_take() {
    // What only a person with a shell on the node, or with `gpuaas node`, can do or see.
    let of_operator =
        ["gpuaas node", " node ", "machine", "stop the process", "port ", "etcdctl", "NTP", "SELinux", "kubelet.log"];
    for row in FAULTS.iter().chain(OTHER_FAULTS) {
        for is_deployed in [false, true] {
            let of = subject(false, is_deployed);
            let remedy = row.remedy(&of);
            let next = remedy.next(&of);
            let command = next.command.expect("every fault of RKE2 has a command");
            let verb = command.split(' ').nth(2).expect("a verb").trim_end_matches('s');
            assert!(next.text.contains(verb), "{}: {:?} and {command}", row.code, next.text);
            let asks = next.text.starts_with("ask the operator to ") && next.text.contains(" on NODE, then resume");
            assert_eq!(asks, remedy.who() == "operator", "{}: {:?}", row.code, next.text);
            if !asks && command.contains("resume") && !next.text.starts_with("resume") {
                let beyond = of_operator.iter().find(|what| next.text.contains(**what));
                assert_eq!(beyond, None, "{}: a tenant cannot: {:?}", row.code, next.text);
            }
            assert!(!row.summary.is_empty() && !row.why.is_empty(), "{}", row.code);
        }
    }
}

#[test]
fn texts_that_end_the_wait_need_no_second_condition() {
    for row in FAULTS.iter().filter(|row| row.decisive_after.is_some()) {
        // The agent compares only the text itself.
        assert!(row.with.is_empty() && row.preceded_by.is_none(), "{}", row.code);
        assert!(!matches!(row.counts, Counts::During(_)), "{}", row.code);
        let is_one_line = matches!(row.proof, Proof::Line | Proof::Waiting);
        assert!(is_one_line, "{}: healthy starts contain these lines", row.code);
        assert!(row.symptoms.iter().all(|text| !text.contains('"')), "{}: a quote may be escaped", row.code);
    }
}
