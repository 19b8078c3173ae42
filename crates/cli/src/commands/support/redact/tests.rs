use super::*;

/// Asserts that each text is redacted to the one next to it.
fn assert_redacted(table: &[(&str, &str)]) {
    for (text, shown) in table {
        assert_eq!(redacted(text), *shown, "of {text}");
    }
}

fn assert_unchanged(table: &[&str]) {
    for text in table {
        assert_eq!(redacted(text), *text);
    }
}

#[test]
fn own_secrets_are_redacted_even_if_truncated() {
    assert_redacted(&[
        ("a gpuaas_MttCUsJZkmYdyJJVwOAGEh2hgYWvd35T b", "a [redacted: API token] b"),
        ("a gpuaas_MttC", "a [redacted: API token]"),
        ("gpuaas-enroll_MttCUsJZkmYdyJJVwOAGEh2hgYWvd35T", "[redacted: API token]"),
        ("string gpuaas1.eyJ1cmwiOiJodHRwczovL2Nw.12ab34cd", "string [redacted: enrollment string]"),
        ("string gpuaas1.eyJ1c", "string [redacted: enrollment string]"),
        ("K10a1b2c3d4e5f60718293a4b5c6d7e8f90a::server:s3cret x", "[redacted: cluster token] x"),
        ("K10a1b2c3d4e5f6", "[redacted: cluster token]"),
        ("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln", "[redacted: JSON web token]"),
        ("eyJhbGciOiJSUzI1NiJ9.eyJzd", "[redacted: JSON web token]"),
    ]);
}

#[test]
fn request_credentials_are_redacted() {
    assert_redacted(&[
        ("Authorization: Bearer abcdefghij", "Authorization: [redacted: credentials]"),
        ("authorization: Basic YWRhOmh1bnRlcjI=", "authorization: [redacted: credentials]"),
        ("-H 'Authorization: Negotiate YIIabcdef'", "-H 'Authorization: [redacted: credentials]'"),
        ("proxy said Basic YWRhOmh1bnRlcjI= and", "proxy said [redacted: basic credentials] and"),
        ("sent Bearer abcdef0123456789 to", "sent [redacted: bearer token] to"),
        ("Cookie: session=abc; theme=dark\nnext", "Cookie: [redacted: cookie]\nnext"),
        ("\"set-cookie\": \"session=abc; Secure\", \"a\": 1", "\"set-cookie\": \"[redacted: cookie]\", \"a\": 1"),
        ("X-Api-Key: 0123456789", "X-Api-Key: [redacted: field]"),
    ]);
}

#[test]
fn passwords_in_urls_are_redacted() {
    assert_redacted(&[
        ("postgres://gpuaas:hunter22@db/x", "postgres://gpuaas:[redacted: password]@db/x"),
        ("postgres://gpuaas:hun/ter@22@db/x", "postgres://gpuaas:[redacted: password]@db/x"),
        ("postgres://gpuaas:123/45@db/x", "postgres://gpuaas:[redacted: password]@db/x"),
        ("https://ada:p@ss@cp:7443/api", "https://ada:[redacted: password]@cp:7443/api"),
    ]);
}

#[test]
fn values_with_secret_names_are_redacted() {
    assert_redacted(&[
        ("{\"client_token\":\"abcdefgh\",\"n\":1}", "{\"client_token\":\"[redacted: field]\",\"n\":1}"),
        ("{\"password\": \"correct horse, battery\"}", "{\"password\": \"[redacted: field]\"}"),
        ("{\"password\":\"say \\\"x\\\" now\",\"n\":1}", "{\"password\":\"[redacted: field]\",\"n\":1}"),
        ("\"{\\\"token\\\":\\\"ab cd\\\",\\\"n\\\":1}\"", "\"{\\\"token\\\":\\\"[redacted: field]\\\",\\\"n\\\":1}\""),
        (r#"{\\\"token\\\":\\\"abcdefgh\\\"}"#, r#"{\\\"token\\\":\\\"[redacted: field]\\\"}"#),
        ("{'secret': 'ab cd'}", "{'secret': '[redacted: field]'}"),
        ("{\"password\":\"the line was c", "{\"password\":\"[redacted: field]"),
        ("client-key-data: LS0tLS1CRUdJTg==", "client-key-data: [redacted: field]"),
        ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG", "AWS_SECRET_ACCESS_KEY=[redacted: field]"),
        ("export API_KEY=abcdef user=ada", "export API_KEY=[redacted: field] user=ada"),
        ("  passphrase: correct horse battery\nuser: ada", "  passphrase: [redacted: field]\nuser: ada"),
        ("GET /x?token=abcdef&page=2", "GET /x?token=[redacted: field]&page=2"),
        ("gpuaas-agent --token hunter22 --name a", "gpuaas-agent --token [redacted: field] --name a"),
        ("run --join-token='ab cd' x", "run --join-token='[redacted: field]' x"),
        ("INFO login: password: swordfish", "INFO login: password: [redacted: field]"),
        ("INFO using token: hunter22", "INFO using token: [redacted: field]"),
        (&format!("kubeconfig: {}", "YXBp".repeat(16)), "kubeconfig: [redacted: field]"),
    ]);
}

#[test]
fn every_secret_name_is_recognized_with_any_prefix() {
    for name in [
        "password",
        "passwd",
        "passphrase",
        "secret",
        "token",
        "api_key",
        "api-key",
        "apiKey",
        "access_key",
        "private-key",
        "key_data",
        "sealing_key",
        "credential",
        "credentials",
    ] {
        let shown = format!("{{\"my_{name}\":\"[redacted: field]\",\"n\":1}}");
        assert_redacted(&[(&format!("{{\"my_{name}\":\"correct horse\",\"n\":1}}"), &shown)]);
    }
}

#[test]
fn complete_and_partial_private_keys_are_redacted() {
    let (first, last) = ("MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg", "nRz0Ab==");
    let whole = format!("-----BEGIN EC PRIVATE KEY-----\n{first}\n{last}\n-----END EC PRIVATE KEY-----\nrest");
    let on_one_line = whole.replace('\n', "\\n");
    let without_end = format!("cut -----BEGIN PRIVATE KEY-----\n{first}\nnRz");
    let without_begin = format!("GSM49\n{first}\n{last}\n-----END PRIVATE KEY-----\nrest");
    let encrypted = whole.replacen('\n', "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n", 1);
    assert_redacted(&[
        (&whole, "[redacted: private key]\nrest"),
        (&on_one_line, "[redacted: private key]\\nrest"),
        (&without_end, "cut [redacted: private key]"),
        (&without_begin, "[redacted: private key]\nrest"),
        (&encrypted, "[redacted: private key]\nrest"),
        ("cut -----BEGIN PRIVATE KEY-----\nMHc", "cut [redacted: private key]"),
    ]);
}

#[test]
fn other_text_stays_unchanged() {
    assert_unchanged(&[
        "{\"kind\":\"token.created\",\"subject_id\":\"0198c0de-0000-7000-8000-000000000000\"}",
        "task.dispatch key=ed25519-d85456dc5a2c08d2 envelope=sha256:d3ea6d32919114161040fde50062cdf5",
        "https://127.0.0.1:7443/api/v1/nodes",
        "https://127.0.0.1:7443/api/v1/nodes?mail=ada@example.org",
        "error: invalid token: expired",
        "this token: it was withdrawn",
        "secret:\n  secretName: tls",
        "volumes:\n- secret:\n    secretName: tls\n    defaultMode: 420",
        "expected -----BEGIN PRIVATE KEY----- in the file\nall is well\nand continues",
        "set a valid token in GPUAAS_TOKEN; requests send it as `Authorization: Bearer …`",
        "the Authorization header contains no bearer token",
        "authorization: required before anything else",
        "basic authentication is not offered, nor bearer authentication",
        "gpuaas_http_requests_total{route=\"none\"} 4\ngpuaas_nodes{connectivity=\"connected\"} 1",
        "{\"token\":null,\"has_secret\":true,\"password\":\"\"}",
        "--token-file /run/secrets/token",
        "-----BEGIN CERTIFICATE-----\nMIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg\n-----END CERTIFICATE-----",
        "kubeconfig: /etc/rancher/rke2/rke2.yaml",
        "{\"tokens\": 3, \"token_count\": 5}",
        r#"{\"password\":\"\"}"#,
        "{'token': ''}",
        "token = null and password=none",
        "token: null\nhas_secret: true",
    ]);
}
