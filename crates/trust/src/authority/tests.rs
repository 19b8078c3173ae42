use rustls_pki_types::CertificateSigningRequestDer;
use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer};

use super::certificate_request::{requested_key_sha256, tagged};
use super::*;
use gpuaas_model::NodeId;

const NOW: Timestamp = Timestamp::from_millis(1_790_000_000_000);

fn identity() -> NodeIdentity {
    let node: NodeId = "0198c0de-7a3b-7c11-9b54-0242ac120002".parse().unwrap();
    NodeIdentity { control_plane: "cp-1".into(), node, epoch: 3 }
}

#[test]
fn authority_is_restored_from_pem() {
    let made = Authority::generate("cp-1", NOW).unwrap();
    let kept = Authority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
    assert_eq!(made.digest(), kept.digest());
}

#[test]
fn extra_certificate_in_the_authority_pem_is_dropped() {
    let (own, other) = (Authority::generate("cp-1", NOW).unwrap(), Authority::generate("cp-1", NOW).unwrap());
    let both = format!("{}{}", own.certificate_pem(), other.certificate_pem());
    let kept = Authority::from_pem(&both, &own.key_pem()).unwrap();
    assert_eq!(kept.certificate_pem(), own.certificate_pem());
    let read = CertificateDer::from_pem_slice(kept.certificate_pem().as_bytes()).unwrap();
    assert_eq!(&read, own.certificate());
}

#[test]
fn authority_certificate_of_another_key_is_refused() {
    let (own, other) = (Authority::generate("cp-1", NOW).unwrap(), Authority::generate("cp-1", NOW).unwrap());
    let swapped = Authority::from_pem(other.certificate_pem(), &own.key_pem());
    assert!(matches!(swapped, Err(AuthorityError::Material(_))));
}

#[test]
fn restored_successor_chains_to_its_predecessor() {
    let first = Authority::generate("cp-1", NOW).unwrap();
    let made = first.successor(NOW).unwrap();
    let kept = Authority::from_pem(made.certificate_pem(), &made.key_pem()).unwrap();
    let kept = kept.with_predecessor(&made.by_predecessor_pem()).unwrap();
    let chain = |authority: &Authority| authority.issue_server(&["cp.example".into()], NOW).unwrap().0[1..].to_vec();
    assert_eq!(chain(&kept), chain(&made));
    assert_eq!(chain(&kept).len(), 3, "the certificate by the predecessor, the predecessor's, and its own");
    assert_eq!(chain(&first).len(), 1);
}

#[test]
fn a_certificate_names_the_authority_that_issued_it() {
    let first = Authority::generate("cp-1", NOW).unwrap();
    let next = first.successor(NOW).unwrap();
    let request = NodeKey::generate().unwrap().request_pem().unwrap();
    for (issuer, other) in [(&first, &next), (&next, &first)] {
        let pem = issuer.issue_node(&request, &identity(), NOW).unwrap();
        let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        assert!(names_issuer(&der, issuer.certificate()) && !names_issuer(&der, other.certificate()));
    }
}

#[test]
fn node_certificate_ignores_the_identity_in_the_request() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut greedy = CertificateParams::new(vec!["cp.example".to_owned()]).unwrap();
    greedy.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let request = greedy.serialize_request(&key).unwrap().pem().unwrap();
    let pem = authority.issue_node(&request, &identity(), NOW).unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert_eq!(NodeIdentity::of_certificate(&der).unwrap(), identity());
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).unwrap();
    assert!(!parsed.is_ca());
    assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
}

#[test]
fn a_request_with_a_spoiled_signature_or_another_kind_of_key_is_refused() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let good = NodeKey::generate().unwrap().request_pem().unwrap();
    assert!(authority.issue_node(&good, &identity(), NOW).is_ok());
    assert!(matches!(authority.issue_node("garbage", &identity(), NOW), Err(AuthorityError::Request(_))));
    let mut spoiled = CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap().to_vec();
    *spoiled.last_mut().unwrap() ^= 1;
    let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, spoiled);
    let spoiled = format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n");
    assert!(matches!(authority.issue_node(&spoiled, &identity(), NOW), Err(AuthorityError::Request(_))));
    let key = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let request = CertificateParams::default().serialize_request(&key).unwrap().pem().unwrap();
    assert!(matches!(authority.issue_node(&request, &identity(), NOW), Err(AuthorityError::WeakKey)));
    // A request from OpenSSL with a P-384 key that signs with SHA-256, as P-256 keys do.
    let p384 = "-----BEGIN CERTIFICATE REQUEST-----\n\
                MIH3MH8CAQAwADB2MBAGByqGSM49AgEGBSuBBAAiA2IABMUhzIav+l6J0ZXCxF7w\n\
                9tbJiArnY3H7JIBWnmCWOITeowxrlU0HbQ9sOBr/COQSan2Tdvn20MMxrhvMz9I7\n\
                MONXiFJF7nlIARkXPc0mL4bSEqzwYNvJdTYW8dWxCk9CPqAAMAoGCCqGSM49BAMC\n\
                A2gAMGUCMAyxr3+vQdSm+ndbmf/H2hbWjsgN8WoMTz3zRUcBdx4qOICrPxJ1rWzc\n\
                /AyytHJ97AIxAO+PmPYhX/UjwRAB5lWkvAR9ASEOz7YtsRQlGLs7E3+DHOOtQdDq\n\
                bDHrxkwD2bOvKA==\n\
                -----END CERTIFICATE REQUEST-----\n";
    assert!(matches!(authority.issue_node(p384, &identity(), NOW), Err(AuthorityError::WeakKey)));
}

#[test]
fn a_pin_is_the_digest_of_the_public_key_and_outlives_the_certificate() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let made = ServerKey::generate().unwrap();
    let kept = ServerKey::from_pem(&made.to_pem()).unwrap();
    assert_eq!(made.pin(), kept.pin());
    assert_ne!(made.pin(), ServerKey::generate().unwrap().pin());
    let chain = authority.issue_server_for(&kept, &["cp.example".to_owned()], NOW).unwrap();
    let (_, certificate) = x509_parser::parse_x509_certificate(&chain[0]).unwrap();
    let digest = crate::digest::sha256_hex(certificate.public_key().raw);
    assert_eq!(made.pin(), format!("sha256//{}", STANDARD.encode(hex::decode(digest).unwrap())));
}

fn request_pem(der: &[u8]) -> String {
    let body = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
}

/// Validity period in seconds relative to [`NOW`].
fn life(certificate: &[u8]) -> (i64, i64) {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).unwrap();
    let since = |at: x509_parser::time::ASN1Time| at.timestamp() - NOW.as_millis() / 1_000;
    (since(parsed.validity().not_before), since(parsed.validity().not_after))
}

#[test]
fn certificates_have_the_documented_lifetime_and_are_backdated() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let node = authority.issue_node(&NodeKey::generate().unwrap().request_pem().unwrap(), &identity(), NOW).unwrap();
    assert_eq!(life(&CertificateDer::from_pem_slice(node.as_bytes()).unwrap()), (-300, 86_400));
    let (server, _) = authority.issue_server(&["cp.example".to_owned()], NOW).unwrap();
    assert_eq!(life(&server[0]), (-300, 90 * 86_400));
    assert_eq!(life(authority.certificate()), (-300, 3_650 * 86_400));
    assert_eq!(crate::issued_at(&server[0]).unwrap(), NOW);
}

#[test]
fn request_and_certificate_of_one_key_have_one_digest() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let made = NodeKey::generate().unwrap();
    let kept = NodeKey::from_pem(&made.to_pem()).unwrap();
    let pem = authority.issue_node(&made.request_pem().unwrap(), &identity(), NOW).unwrap();
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let certified = certified_key_sha256(&certificate).unwrap();
    let requested = |key: &NodeKey| requested_key_sha256(&key.request_pem().unwrap()).unwrap();
    assert_eq!(certified, requested(&kept));
    assert_ne!(certified, requested(&NodeKey::generate().unwrap()));
    assert!(requested_key_sha256("garbage").is_err() && certified_key_sha256(b"garbage").is_err());
}

#[test]
fn request_must_be_canonical_der_without_trailing_data() {
    let authority = Authority::generate("cp-1", NOW).unwrap();
    let good = NodeKey::generate().unwrap().request_pem().unwrap();
    let der = CertificateSigningRequestDer::from_pem_slice(good.as_bytes()).unwrap().to_vec();
    let issue = |der: &[u8]| authority.issue_node(&request_pem(der), &identity(), NOW);
    assert!(issue(&der).is_ok());
    assert!(matches!(issue(&[&der[..], &[0]].concat()), Err(AuthorityError::Request(_))), "trailing data");
    // The same length in a longer encoding: different bytes with the same signature.
    let (header, content) = if der[1] == 0x81 { (&der[2..3], &der[3..]) } else { (&der[2..4], &der[4..]) };
    let longer = [&[0x30, 0x83][..], &[0, 0, 0][..3 - header.len()], header, content].concat();
    assert!(matches!(issue(&longer), Err(AuthorityError::Request(_))), "longer length encoding");
    // A bit of the signature declared unused, which the signature does not cover.
    let signature = X509CertificationRequest::from_der(&der).unwrap().1.signature_value.data.len();
    let mut unused = der.clone();
    unused[der.len() - signature - 1] = 1;
    assert!(matches!(issue(&unused), Err(AuthorityError::Request(_))), "an unused bit");
}

#[test]
fn lengths_have_their_shortest_form() {
    for (length, header) in [
        (0, vec![0x30, 0]),
        (0x7f, vec![0x30, 0x7f]),
        (0x80, vec![0x30, 0x81, 0x80]),
        (0xff, vec![0x30, 0x81, 0xff]),
        (0x100, vec![0x30, 0x82, 1, 0]),
    ] {
        let tagged = tagged(0x30, &vec![7; length]);
        assert_eq!((&tagged[..header.len()], tagged.len()), (&header[..], header.len() + length));
    }
}
