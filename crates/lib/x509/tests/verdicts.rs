//! Compares Firn's results for certificates with those of Go 1.26.
//!
//! Each line of `rules.jsonl` is an example of one rule, and each line of `random.jsonl` a random
//! chain: the text of `ca_file`, the certificates of a peer in DER, and Go's error, which is empty
//! for accepted certificates. A line of `pairs.jsonl` contains a certificate and a key. All results
//! are for the same time. Lines of `differences.jsonl` are accepted by Go; their verdict is the
//! beginning of Firn's error.
//!
//! The variable `FIRN_VERDICTS` names a file with additional random chains.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firn_x509::handshake::PeerCertificates;
use firn_x509::key_pair::parse_certified_key;
use firn_x509::{CertificatePool, CertificatePurpose};
use rustls::pki_types::{CertificateDer, UnixTime};
use serde_json::Value;
use std::time::Duration;

const NOW: UnixTime = UnixTime::since_unix_epoch(Duration::from_secs(1_800_000_000));

fn text<'v>(case: &'v Value, key: &str) -> &'v str {
    case[key].as_str().unwrap_or_default()
}

fn chain_verdict(case: &Value) -> Result<(), String> {
    let is_judged = case["insecure"] != true;
    let roots = CertificatePool::from_pem(text(case, "ca").as_bytes());
    if is_judged && roots.is_empty() {
        return Err("unable to use specified CA cert".to_owned());
    }
    let chain = case["chain"].as_array().expect("a chain").iter();
    let chain = chain.map(|der| {
        let der = BASE64_STANDARD.decode(der.as_str().expect("base64"));
        CertificateDer::from(der.expect("base64"))
    });
    let chain: Vec<_> = chain.collect();
    let (leaf, others) = chain.split_first().expect("a leaf");
    let (purpose, host) = match text(case, "purpose") {
        "client" => (CertificatePurpose::Client, None),
        _ => (CertificatePurpose::Server, Some(text(case, "host"))),
    };
    let peer = PeerCertificates::read(purpose, leaf, others).map_err(|e| e.to_string())?;
    if is_judged {
        let checked = peer.check(&roots, host, NOW);
        checked.map_err(|e| e.to_string())?;
    }
    peer.check_key().map_err(|e| e.to_string())
}

fn pair_verdict(case: &Value) -> Result<(), String> {
    let (cert, key) = (text(case, "cert"), text(case, "key"));
    parse_certified_key(cert.as_bytes(), key.as_bytes()).map(drop)
}

/// Fails with all lines whose result differs. Go's texts may continue with details.
fn check(lines: &str, is_text_compared: bool, verdict: fn(&Value) -> Result<(), String>) {
    let mut different = Vec::new();
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let expected = case["verdict"].as_str().expect("a verdict");
        let found = verdict(&case).err().unwrap_or_default();
        let is_same_text = !is_text_compared || expected.starts_with(&found);
        if found.is_empty() != expected.is_empty() || !is_same_text {
            let name = &case["name"];
            different.push(format!("{name}\n  Go:   {expected}\n  Firn: {found}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn rules_are_those_of_go() {
    check(include_str!("rules.jsonl"), true, chain_verdict);
}

#[test]
fn random_chains_are_judged_as_go_judges_them() {
    check(include_str!("random.jsonl"), false, chain_verdict);
    if let Ok(path) = std::env::var("FIRN_VERDICTS") {
        let more = std::fs::read_to_string(path).expect("FIRN_VERDICTS");
        check(&more, false, chain_verdict);
    }
}

#[test]
fn key_pairs_are_read_as_go_reads_them() {
    check(include_str!("pairs.jsonl"), true, pair_verdict);
}

#[test]
fn rare_certificates_are_refused_with_a_reason() {
    for line in include_str!("differences.jsonl").lines() {
        let case: Value = serde_json::from_str(line).expect("JSON");
        let verdict = if case["key"].is_null() {
            chain_verdict(&case)
        } else {
            pair_verdict(&case)
        };
        let found = verdict.expect_err("a refusal");
        let expected = text(&case, "verdict");
        assert!(found.starts_with(expected), "{}: {found}", case["name"]);
    }
}
