//! Checks whether a certificate is valid for a host, as Go's `VerifyHostname` does: only subject
//! alternative names are used, not the common name.

use super::X509Certificate;
use super::verify::CertificateRejection;
use std::fmt::Display;
use std::net::IpAddr;

/// Number of names from which an error text contains their count instead of the names.
const LISTED_MAX: usize = 100;

/// Checks that `certificate` is valid for `host`, which is a name or an IP address, optionally in
/// brackets.
pub(crate) fn check_host(
    certificate: &X509Certificate,
    host: &str,
) -> Result<(), CertificateRejection> {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    let bare = bare.filter(|inner| !inner.is_empty()).unwrap_or(host);
    let names = &certificate.extensions.names;
    if let Ok(address) = bare.parse::<IpAddr>() {
        let same = |ip: &IpAddr| ip.to_canonical() == address.to_canonical();
        return if names.ips.iter().any(same) {
            Ok(())
        } else {
            Err(address_rejection(&names.ips, bare))
        };
    }
    let wanted = host.to_ascii_lowercase();
    if names.dns.iter().any(|name| matches(name, &wanted)) {
        Ok(())
    } else {
        Err(name_rejection(certificate, host))
    }
}

/// Returns whether a name in a certificate matches a lower-case host. Wildcards and trailing dots
/// have a meaning only in valid names; other names must be equal.
fn matches(name: &str, wanted: &str) -> bool {
    if is_host(wanted, false) && is_host(name, true) {
        return matches_labels(name, wanted);
    }
    !["", "."].contains(&name) && name.eq_ignore_ascii_case(wanted)
}

fn matches_labels(name: &str, wanted: &str) -> bool {
    let wanted = wanted.strip_suffix('.').unwrap_or(wanted);
    let (mut ours, mut theirs) = (name.split('.'), wanted.split('.'));
    let mut is_first = true;
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return !name.is_empty(),
            (Some("*"), Some(_)) if is_first => {}
            (Some(a), Some(b)) if a.eq_ignore_ascii_case(b) => {}
            _ => return false,
        }
        is_first = false;
    }
}

/// Returns whether a text is a valid host name or, with `is_pattern`, a wildcard pattern.
/// Underscores are accepted.
fn is_host(text: &str, is_pattern: bool) -> bool {
    let text = match text.strip_suffix('.') {
        Some(text) if !is_pattern => text,
        _ => text,
    };
    text != "*"
        && text.split('.').enumerate().all(|(index, label)| {
            let is_wildcard = is_pattern && index == 0 && label == "*";
            is_wildcard || is_label(label)
        })
}

fn is_label(label: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    !label.is_empty() && !label.starts_with('-') && label.bytes().all(is_allowed)
}

fn address_rejection(valid: &[IpAddr], wanted: &str) -> CertificateRejection {
    if valid.is_empty() {
        let why = "because it doesn't contain any IP SANs";
        return CertificateRejection::Host(format!(
            "cannot validate certificate for {wanted} {why}"
        ));
    }
    host_rejection(valid, "IP SANs", wanted)
}

fn name_rejection(certificate: &X509Certificate, wanted: &str) -> CertificateRejection {
    let common_name = &certificate.subject.common_name;
    let has_names = certificate.extensions.raw_names.is_some();
    if !has_names && matches_labels(common_name, &wanted.to_ascii_lowercase()) {
        let why = "certificate relies on legacy Common Name field, use SANs instead";
        return CertificateRejection::Host(why.to_owned());
    }
    host_rejection(&certificate.extensions.names.dns, "names", wanted)
}

fn host_rejection(valid: &[impl Display], kind: &str, wanted: &str) -> CertificateRejection {
    if valid.len() >= LISTED_MAX {
        let count = valid.len();
        return CertificateRejection::Host(format!(
            "certificate is valid for {count} {kind}, but none matched {wanted}"
        ));
    }
    let listed: Vec<_> = valid.iter().map(ToString::to_string).collect();
    let listed = listed.join(", ");
    CertificateRejection::Host(if listed.is_empty() {
        format!("certificate is not valid for any names, but wanted to match {wanted}")
    } else {
        format!("certificate is valid for {listed}, not {wanted}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_in_go() {
        for (name, host, expected) in [
            ("a.example", "a.example", true),
            ("A.Example", "a.example", true),
            ("a.example", "a.example.", true),
            ("a.example.", "a.example", false),
            ("*.example", "a.example", true),
            ("*.example", "a.b.example", false),
            ("*.example", "example", false),
            ("a*.example", "ab.example", false),
            ("*", "a", false),
            ("a.*.example", "a.b.example", false),
            ("a_b", "a_b", true),
            ("-a", "-a", true),
            ("a-", "a-", true),
            ("*.b_c", "a.b_c", true),
            ("", "", false),
            (".", ".", false),
            ("a b", "a b", true),
            ("a..b", "a..b", true),
            ("*.-b", "a.-b", false),
        ] {
            assert_eq!(matches(name, host), expected, "{name} {host}");
        }
    }
}
