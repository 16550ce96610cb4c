//! Removes ports and domains from host names, following the rules of Go's `net.SplitHostPort`.

use std::net::IpAddr;

/// Splits a text into host and port; `None` if it has no valid port at the end.
fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = text.iter().rposition(|b| *b == b':')?;
    let (host, port) = (&text[..colon], &text[colon + 1..]);
    let host = match host {
        [b'[', inside @ .., b']'] if !inside.contains(&b']') => inside,
        [b'[', ..] => return None,
        _ if host.contains(&b':') => return None,
        _ => host,
    };
    let has_bracket = |part: &[u8]| part.iter().any(|b| matches!(b, b'[' | b']'));
    (!has_bracket(host) && !has_bracket(port)).then_some((host, port))
}

/// Implements `stripPort`: returns the host without its port. A text that is not a host with a port
/// is unchanged.
pub(super) fn strip_port(text: &[u8]) -> Vec<u8> {
    split(text).map_or(text, |(host, _)| host).to_vec()
}

/// Implements `stripDomain`: returns the first label of the host name with its port. IP addresses
/// are unchanged.
pub(super) fn strip_domain(text: &[u8]) -> Vec<u8> {
    let (host, port) = split(text).unwrap_or((text, b""));
    let is_address = std::str::from_utf8(host).is_ok_and(|host| host.parse::<IpAddr>().is_ok());
    if is_address {
        return text.to_vec();
    }
    let label = host.split(|b| *b == b'.').next().unwrap_or_default();
    match port {
        b"" => label.to_vec(),
        _ if label.contains(&b':') => [b"[", label, b"]:", port].concat(),
        _ => [label, b":", port].concat(),
    }
}
