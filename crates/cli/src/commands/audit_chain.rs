//! Implements `gpuaas audit chain` and `gpuaas audit verify`.

use std::process::ExitCode;

use gpuaas_api_types::{AuditChain, AuditDefect, AuditHead, AuditVerification};
use gpuaas_client::Client;
use gpuaas_model::{ChainResult, Code};
use gpuaas_trust::is_sha256_hex;

use crate::{output, target::Target};

/// Prints the state of the chain.
pub(crate) async fn show(client: &Client, target: &Target) -> anyhow::Result<()> {
    let chain = client.get_audit_chain().await?;
    let name = chain.last_seal.as_ref().map(|seal| shown_head(seal.number, &seal.digest)).unwrap_or_default();
    output::one(target.output, &chain, described_chain, &name)
}

/// Verifies the audit and prints the result. A broken chain is a failure.
pub(crate) async fn verify(client: &Client, target: &Target, head: Option<AuditHead>) -> anyhow::Result<ExitCode> {
    let verified = client.verify_audit(head).await?;
    let name = verified.head.as_ref().map(|head| shown_head(head.seal, &head.digest)).unwrap_or_default();
    output::one(target.output, &verified, described, &name)?;
    if verified.result == ChainResult::Intact.as_str() {
        return Ok(ExitCode::SUCCESS);
    }
    let code = Code::AuditChainBroken;
    output::hint(target.output, &format!("see what to do: gpuaas explain {code}"));
    Ok(output::exit(code.exit()))
}

/// Parses a head as [`verify`] prints it.
pub(crate) fn parse_head(text: &str) -> Result<AuditHead, String> {
    let parts = text.split_once(':').and_then(|(seal, digest)| Some((seal.parse::<u64>().ok()?, digest)));
    match parts.filter(|(seal, digest)| *seal > 0 && is_sha256_hex(digest)) {
        Some((seal, digest)) => Ok(AuditHead { seal, digest: digest.to_owned() }),
        None => Err("a head is the number of a seal, a colon and 64 lower-case hex digits".to_owned()),
    }
}

fn described_chain(chain: &AuditChain) -> String {
    let mut parts = vec![format!("{} records", grouped(chain.records))];
    match &chain.last_seal {
        Some(seal) => parts.push(format!("sealed until {} at {}", grouped(chain.sealed_until), seal.at)),
        None => parts.push("nothing sealed yet".to_owned()),
    }
    if chain.unsealed > 0 {
        let since = chain.unsealed_since.as_ref().map(|at| format!(" since {at}")).unwrap_or_default();
        parts.push(format!("{} not sealed yet{since}", grouped(chain.unsealed)));
    }
    if let Some(seal) = &chain.last_seal {
        parts.push(format!("head {}", shown_head(seal.number, &seal.digest)));
    }
    let stopped = chain.stopped.as_ref().map(|why| format!("\nsealing has stopped: {why}")).unwrap_or_default();
    parts.join(" · ") + &stopped
}

fn described(of: &AuditVerification) -> String {
    let mut parts = vec![format!("{} records", grouped(of.records)), format!("chain {}", of.result)];
    match of.defects_found {
        0 => {}
        1 => parts.push("1 defect".to_owned()),
        defects => parts.push(format!("{} defects", grouped(defects))),
    }
    if of.unsealed > 0 {
        parts.push(format!("{} not sealed yet", grouped(of.unsealed)));
    }
    parts.extend(of.sealed_at.as_ref().map(|at| format!("last seal {at}")));
    parts.extend(of.head.as_ref().map(|head| format!("head {}", shown_head(head.seal, &head.digest))));
    let mut lines = vec![parts.join(" · ")];
    lines.extend(of.defects.iter().map(described_defect));
    let more = of.defects_found.saturating_sub(of.defects.len() as u64);
    if more > 0 {
        lines.push(format!("and {} more", grouped(more)));
    }
    lines.join("\n")
}

fn described_defect(defect: &AuditDefect) -> String {
    let places = [("record", defect.record), ("seal", defect.seal)];
    let places = places.into_iter().filter_map(|(what, number)| Some(format!("{what} {}", number?)));
    let place = places.collect::<Vec<_>>().join(", ");
    let at = if place.is_empty() { place } else { format!(" at {place}") };
    format!("{}{at}: {}", defect.kind, defect.detail)
}

fn shown_head(seal: u64, digest: &str) -> String {
    format!("{seal}:{digest}")
}

/// Returns the number with commas between groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intact() -> AuditVerification {
        AuditVerification {
            result: "intact".to_owned(),
            records: 38_114,
            archived: 0,
            unsealed: 2,
            seals: 412,
            head: Some(AuditHead { seal: 412, digest: "ab".repeat(32) }),
            sealed_at: Some("2026-07-01T13:55:00.000Z".to_owned()),
            defects: Vec::new(),
            defects_found: 0,
        }
    }

    #[test]
    fn head_is_parsed_as_it_is_printed() {
        let head = intact().head.expect("it has one");
        assert_eq!(parse_head(&shown_head(head.seal, &head.digest)), Ok(head.clone()));
        let digest = head.digest;
        for invalid in [digest.clone(), format!("0:{digest}"), format!("-1:{digest}"), "412:ab12".to_owned()] {
            assert!(parse_head(&invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn result_is_one_line_and_each_defect_another_one() {
        let digest = "ab".repeat(32);
        let line = "38,114 records · chain intact · 2 not sealed yet · last seal 2026-07-01T13:55:00.000Z";
        assert_eq!(described(&intact()), format!("{line} · head 412:{digest}"));
        let defect = |kind: &str, seal, record, detail: &str| AuditDefect {
            kind: kind.to_owned(),
            seal,
            record,
            detail: detail.to_owned(),
        };
        let defects = vec![
            defect("missing", Some(3), Some(21), "record 21 is missing"),
            defect("changed", None, None, "a seal has no number"),
        ];
        let (result, head, sealed_at) = ("broken".to_owned(), None, None);
        let broken = AuditVerification { result, unsealed: 0, head, sealed_at, defects, defects_found: 5, ..intact() };
        let expected = "38,114 records · chain broken · 5 defects\n\
                        missing at record 21, seal 3: record 21 is missing\nchanged: a seal has no number\nand 3 more";
        assert_eq!(described(&broken), expected);
    }

    #[test]
    fn chain_says_why_nothing_is_sealed() {
        let stopped = Some("audit seal 57 is gone".to_owned());
        let chain =
            AuditChain { records: 9, sealed_until: 0, unsealed: 9, unsealed_since: None, last_seal: None, stopped };
        let expected = "9 records · nothing sealed yet · 9 not sealed yet\nsealing has stopped: audit seal 57 is gone";
        assert_eq!(described_chain(&chain), expected);
    }

    #[test]
    fn numbers_have_a_comma_before_every_three_digits() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
