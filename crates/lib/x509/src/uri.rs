//! Hosts of URIs, and domains, checked like in Go's `net/url` and `crypto/x509`.

use std::borrow::Cow;
use std::net::Ipv6Addr;

/// Punctuation that a host may contain without escapes.
const HOST_MARKS: &[u8] = b"!\"$&'()*+,-.:;<=>[]_~";

/// Punctuation that user and password may contain without escapes.
const USER_MARKS: &[u8] = b"-._:~!$&'()*+,;=%@";

/// Returns the host of a URI including its port, or an empty text if it has none. Returns `None` if
/// Go cannot parse the URI.
pub(crate) fn parse_host(uri: &str) -> Option<String> {
    let (rest, fragment) = uri.split_once('#').unwrap_or((uri, ""));
    if rest.bytes().any(|b| b.is_ascii_control()) || !are_escapes_whole(fragment) {
        return None;
    }
    let (scheme, rest) = split_scheme(rest)?;
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        let segment = rest.split('/').next().unwrap_or(rest);
        let is_opaque = !scheme.is_empty();
        return if is_opaque {
            Some(String::new())
        } else {
            (!segment.contains(':') && are_escapes_whole(rest)).then(String::new)
        };
    }
    let is_authority = !scheme.is_empty() || !rest.starts_with("///");
    let Some(authority) = rest.strip_prefix("//").filter(|_| is_authority) else {
        return are_escapes_whole(rest).then(String::new);
    };
    let end = authority.find('/').unwrap_or(authority.len());
    let (authority, path) = authority.split_at(end);
    let host = match authority.rsplit_once('@') {
        Some((user, host)) => is_user(user).then_some(host)?,
        None => authority,
    };
    are_escapes_whole(path).then(|| unescaped_host(scheme, host))?
}

/// Splits off the scheme, which is empty if there is none. Returns `None` if it is malformed.
fn split_scheme(uri: &str) -> Option<(&str, &str)> {
    let end = uri.find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
    let starts = uri.starts_with(|c: char| c.is_ascii_alphabetic());
    match end {
        Some(0) if uri.starts_with(':') => None,
        Some(end) if starts && uri[end..].starts_with(':') => Some((&uri[..end], &uri[end + 1..])),
        _ => Some(("", uri)),
    }
}

fn is_user(user: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || USER_MARKS.contains(&b);
    user.bytes().all(is_allowed) && are_escapes_whole(user)
}

fn unescaped_host(scheme: &str, host: &str) -> Option<String> {
    match host.rfind('[') {
        Some(0) => {
            let (address, port) = host[1..].rsplit_once(']')?;
            return (is_port(port) && is_v6(address)?).then(|| format!("[{address}]{port}"));
        }
        Some(_) => return None,
        None => {}
    }
    let is_web = ["http", "https"].contains(&scheme.to_ascii_lowercase().as_str());
    let colon = if is_web {
        host.find(':')
    } else {
        host.rfind(':')
    };
    if colon.is_some_and(|at| !is_port(&host[at..])) {
        return None;
    }
    Some(unescape(host)?.into_owned())
}

fn is_v6(address: &str) -> Option<bool> {
    let (address, zone) = match address.split_once("%25") {
        Some((address, zone)) => (unescape(address)?, Some(zone)),
        None => (unescape(address)?, None),
    };
    let is_zone = |zone: &str| !zone.is_empty() && are_escapes_whole(zone);
    Some(address.parse::<Ipv6Addr>().is_ok() && zone.is_none_or(is_zone))
}

/// Decodes a host, in which only non-ASCII bytes and `%` may be escaped.
fn unescape(host: &str) -> Option<Cow<'_, str>> {
    let is_allowed =
        |b: u8| b.is_ascii_alphanumeric() || HOST_MARKS.contains(&b) || b == b'%' || !b.is_ascii();
    if !host.bytes().all(is_allowed) {
        return None;
    }
    if !host.contains('%') {
        return Some(Cow::Borrowed(host));
    }
    let mut decoded = Vec::new();
    let mut rest = host.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first != b'%' {
            decoded.push(*first);
            rest = after;
            continue;
        }
        let (code, after) = after.split_at_checked(2)?;
        let byte = hex(code)?;
        if byte.is_ascii() && byte != b'%' {
            return None;
        }
        decoded.push(byte);
        rest = after;
    }
    Some(String::from_utf8_lossy(&decoded).into_owned().into())
}

fn hex(code: &[u8]) -> Option<u8> {
    let digit = |b: &u8| char::from(*b).to_digit(16);
    let [high, low] = code else { return None };
    u8::try_from(digit(high)? << 4 | digit(low)?).ok()
}

fn are_escapes_whole(text: &str) -> bool {
    let mut parts = text.as_bytes().split(|b| *b == b'%').skip(1);
    parts.all(|part| part.get(..2).and_then(hex).is_some())
}

fn is_port(text: &str) -> bool {
    let digits = text.strip_prefix(':');
    text.is_empty() || digits.is_some_and(|all| all.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns whether Go accepts a text as a domain. Empty texts are accepted; a constraint may begin
/// with a dot.
pub(crate) fn is_domain(text: &str, is_constraint: bool) -> bool {
    if text.is_empty() {
        return true;
    }
    let labels = if is_constraint {
        text.strip_prefix('.').unwrap_or(text)
    } else {
        text
    };
    let is_visible = text.bytes().all(|b| b.is_ascii_graphic());
    !text.ends_with('.') && is_visible && labels.split('.').all(|label| !label.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(uri: &str, expected: Option<&str>) {
        assert_eq!(parse_host(uri).as_deref(), expected, "{uri}");
    }

    #[test]
    fn hosts_are_read_as_go_reads_them() {
        for (uri, expected) in [
            ("spiffe://cluster.local/ns/a/sa/b", Some("cluster.local")),
            ("https://user:p%40ss@host:8080/a?b#c", Some("host:8080")),
            ("urn:uuid:1234", Some("")),
            ("mailto:a@b", Some("")),
            ("/path", Some("")),
            ("path", Some("")),
            ("a:b", Some("")),
            ("1:b", None),
            (":b", None),
            ("", Some("")),
            ("*", Some("")),
            ("http://[::1]:80/", Some("[::1]:80")),
            ("http://[fe80::1%25eth0]/", Some("[fe80::1%25eth0]")),
            ("http://[1.2.3.4]/", None),
            ("http://[::1", None),
            ("http://a[::1]/", None),
            ("http://a:b/", None),
            ("http://a:1:2/", None),
            ("db://a:1:2/", Some("a:1:2")),
            ("http://a b/", None),
            ("http://a%20b/", None),
            ("http://a%25b/", Some("a%b")),
            ("http://a/%zz", None),
            ("http://a/%2", None),
            ("http://a/#%zz", None),
            ("http://a/?%zz", Some("a")),
            ("http://us er@a/", None),
            ("http://a/\u{7f}", None),
            ("http:///a", Some("")),
            ("///a", Some("")),
        ] {
            check(uri, expected);
        }
    }

    #[test]
    fn domains_are_checked_as_go_checks_them() {
        for (text, is_constraint, expected) in [
            ("", false, true),
            ("a.b", false, true),
            ("_a.b-", false, true),
            ("*.a", false, true),
            ("a.", false, false),
            ("a..b", false, false),
            (".a", false, false),
            (".a", true, true),
            ("..a", true, false),
            (".", true, false),
            ("a b", false, false),
        ] {
            assert_eq!(
                is_domain(text, is_constraint),
                expected,
                "{text} {is_constraint}"
            );
        }
    }
}
