//! Every stable code has its page, every finding and every fix its line.

use gpuaas_model::{Check, Code, FixKind, InstallFault};

#[test]
fn every_code_has_a_page_with_cause_and_action() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let codes = Code::ALL.iter().map(|code| code.as_str());
    for code in codes.chain(InstallFault::ALL.iter().map(|fault| fault.as_str())) {
        let page = std::fs::read_to_string(folder.join(format!("{code}.md"))).unwrap_or_default();
        let (_, action) = page.split_once("**What to do.**").unwrap_or_default();
        assert!(page.contains("**What happened.**") && action.trim().len() > 20, "docs/errors/{code}.md");
    }
}

#[test]
fn every_finding_and_fix_has_its_own_line() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/findings.md");
    let page = std::fs::read_to_string(page).unwrap_or_default();
    let line = |name: &str| page.lines().find(|line| line.starts_with(&format!("| `{name}` |"))).unwrap_or_default();
    for check in Check::ALL {
        let cells: Vec<&str> = line(check.as_str()).split('|').map(str::trim).collect();
        assert!(cells.len() == 6 && cells[1..5].iter().all(|cell| !cell.is_empty()), "docs/findings.md: {check}");
        let command = check.fix().map(|fix| format!("`gpuaas node fix NODE {fix}`"));
        assert!(command.is_none_or(|command| cells[4] == command), "docs/findings.md names the fix command of {check}");
    }
    for fix in FixKind::ALL {
        let line = line(fix.as_str());
        assert!(line.contains(fix.path()), "docs/findings.md: {fix}");
        let sets = fix.sysctls().iter().map(|(name, value)| format!("`{name}` {value}"));
        let loads = fix.modules().iter().map(|module| format!("`{module}`"));
        for text in sets.chain(loads) {
            assert!(line.contains(&text), "{fix}: {text}");
        }
    }
    let documented = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(
        documented,
        Check::ALL.len() + FixKind::ALL.len(),
        "docs/findings.md has a line for an unknown finding or fix"
    );
}
