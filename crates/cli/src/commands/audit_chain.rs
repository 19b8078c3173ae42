//! Implements `gpuaas audit chain` and `gpuaas audit verify`.

use std::process::ExitCode;

use gpuaas_api_types::{AuditChain, AuditHead, AuditVerification};
use gpuaas_client::Client;
use gpuaas_model::{ChainResult, Code};

use crate::{output, target::Target};

/// Digits of a seal's digest.
const DIGEST_DIGITS: usize = 64;

/// Prints the state of the chain.
pub(crate) async fn show(client: &Client, target: &Target) -> anyhow::Result<()> {
    let chain = client.get_audit_chain().await?;
    let name = chain.last_seal.as_ref().map(|seal| format!("{}:{}", seal.number, seal.digest)).unwrap_or_default();
    output::one(target.output, &chain, described_chain, &name)
}

/// Verifies the audit and prints the result. A broken chain is a failure.
pub(crate) async fn verify(client: &Client, target: &Target, head: Option<AuditHead>) -> anyhow::Result<ExitCode> {
    let verified = client.verify_audit(head).await?;
    let name = verified.head.as_ref().map(shown_head).unwrap_or_default();
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
    let is_digest =
        |text: &&str| text.len() == DIGEST_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let parts = text.split_once(':').and_then(|(seal, digest)| Some((seal.parse::<u64>().ok()?, digest)));
    match parts.filter(|(seal, digest)| *seal > 0 && is_digest(digest)) {
        Some((seal, digest)) => Ok(AuditHead { seal, digest: digest.to_owned() }),
        None => Err(format!("a head is the number of a seal, a colon and {DIGEST_DIGITS} lower-case hex digits")),
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
        parts.push(format!("head {}:{}", seal.number, seal.digest));
    }
    parts.join(" · ")
}

fn described(of: &AuditVerification) -> String {
    let mut parts = vec![format!("{} records", grouped(of.records))];
    match &of.defect {
        None => parts.push(format!("chain {}", of.result)),
        Some(defect) => {
            let places = [("record", defect.record), ("seal", defect.seal)];
            let places = places.into_iter().filter_map(|(what, number)| Some(format!("{what} {}", number?)));
            let at = places.collect::<Vec<_>>().join(", ");
            parts.push(format!("chain {} at {at}: {}", of.result, defect.kind));
        }
    }
    if of.unsealed > 0 {
        parts.push(format!("{} not sealed yet", grouped(of.unsealed)));
    }
    let which = if of.defect.is_some() { "last intact seal" } else { "last seal" };
    parts.extend(of.sealed_at.as_ref().map(|at| format!("{which} {at}")));
    parts.extend(of.head.as_ref().map(|head| format!("head {}", shown_head(head))));
    let lines = std::iter::once(parts.join(" · ")).chain(of.defect.as_ref().map(|defect| defect.detail.clone()));
    lines.collect::<Vec<_>>().join("\n")
}

fn shown_head(head: &AuditHead) -> String {
    format!("{}:{}", head.seal, head.digest)
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
    use gpuaas_api_types::AuditDefect;

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
            defect: None,
        }
    }

    #[test]
    fn head_is_parsed_as_it_is_printed() {
        let head = intact().head.expect("it has one");
        assert_eq!(parse_head(&shown_head(&head)), Ok(head.clone()));
        let digest = head.digest;
        for invalid in [digest.clone(), format!("0:{digest}"), format!("-1:{digest}"), "412:ab12".to_owned()] {
            assert!(parse_head(&invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn result_is_one_line_and_a_defect_a_second_one() {
        let digest = "ab".repeat(32);
        let line = "38,114 records · chain intact · 2 not sealed yet · last seal 2026-07-01T13:55:00.000Z";
        assert_eq!(described(&intact()), format!("{line} · head 412:{digest}"));
        let defect = AuditDefect {
            kind: "missing".to_owned(),
            seal: Some(3),
            record: Some(21),
            detail: "record 21 is missing".to_owned(),
        };
        let broken = AuditVerification {
            result: "broken".to_owned(),
            records: 20,
            unsealed: 0,
            head: None,
            sealed_at: None,
            defect: Some(defect),
            ..intact()
        };
        let expected = "20 records · chain broken at record 21, seal 3: missing\nrecord 21 is missing";
        assert_eq!(described(&broken), expected);
    }

    #[test]
    fn numbers_have_a_comma_before_every_three_digits() {
        assert_eq!([0, 999, 1_000, 12_345_678].map(grouped), ["0", "999", "1,000", "12,345,678"]);
    }
}
