//! Every stable code has its page.

use gpuaas_model::{Code, InstallFault};

#[test]
fn every_code_has_a_page_that_says_what_happened_and_what_to_do() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    let codes = Code::ALL.iter().map(|code| code.as_str());
    for code in codes.chain(InstallFault::ALL.iter().map(|fault| fault.as_str())) {
        let page = std::fs::read_to_string(folder.join(format!("{code}.md"))).unwrap_or_default();
        assert!(page.contains("**What happened.**") && page.contains("**What to do.**"), "docs/errors/{code}.md");
    }
}
