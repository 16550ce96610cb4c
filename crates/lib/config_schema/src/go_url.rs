//! Validates URLs like Go's `net/url`, with which Prometheus parses the URLs of a config.
//!
//! Only rejections and their errors matter here; the client parses the URL itself. Follows `Parse`
//! of Go 1.26 in the rejected texts and their errors.

use firn_model::quote::quote;
use std::net::IpAddr;

/// Part of a URL, which determines the characters that may or must be escaped in it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum UrlComponent {
    User,
    Host,
    Zone,
    Other,
}

/// Parts of a valid URL that the checks of a config need. Borrowed from the parsed text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoUrl<'t> {
    /// Scheme as written, or an empty text if there is none.
    pub scheme: &'t str,
    /// Host and port without a user, or an empty text.
    pub host: &'t str,
}

/// Parses `text` with the rules of Go. Returns Go's error if it is invalid.
pub fn parse(text: &str) -> Result<GoUrl<'_>, String> {
    let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
    let refuse = |what: &str, why: String| format!("parse {}: {why}", quote(what.as_bytes()));
    let parsed = parse_url(url).map_err(|why| refuse(url, why))?;
    check_escapes(fragment, UrlComponent::Other).map_err(|why| refuse(text, why))?;
    Ok(parsed)
}

fn parse_url(url: &str) -> Result<GoUrl<'_>, String> {
    if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Err("net/url: invalid control character in URL".into());
    }
    let (scheme, rest) = split_scheme(url)?;
    let none = GoUrl { scheme, host: "" };
    if url == "*" {
        return Ok(none);
    }
    let path = rest.split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        if !scheme.is_empty() {
            return Ok(none);
        }
        if path.split('/').next().unwrap_or_default().contains(':') {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let is_authority = !scheme.is_empty() || !path.starts_with("///");
    let Some(authority) = path.strip_prefix("//").filter(|_| is_authority) else {
        check_escapes(path, UrlComponent::Other)?;
        return Ok(none);
    };
    let (authority, path) = authority.split_at(authority.find('/').unwrap_or(authority.len()));
    let host = split_host(authority)?;
    check_escapes(path, UrlComponent::Other)?;
    Ok(GoUrl { scheme, host })
}

/// Splits the text into the scheme, which may be empty, and the part after its colon.
fn split_scheme(url: &str) -> Result<(&str, &str), String> {
    for (at, byte) in url.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme".into()),
            b':' => return Ok((&url[..at], &url[at + 1..])),
            _ => break,
        }
    }
    Ok(("", url))
}

/// Validates `user@host:port` and returns host and port without the user.
fn split_host(authority: &str) -> Result<&str, String> {
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    check_host(host)?;
    if let Some(user) = user {
        let may_stand = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
        if !user.chars().all(may_stand) {
            return Err("net/url: invalid userinfo".into());
        }
        check_escapes(user, UrlComponent::User)?;
    }
    Ok(host)
}

fn check_host(host: &str) -> Result<(), String> {
    match host.rfind('[') {
        Some(0) => return check_literal(host),
        Some(_) => return Err("invalid IP-literal".into()),
        None => {}
    }
    // Prometheus is built to accept hosts with colons, as older versions of Go do.
    if let Some(colon) = host.rfind(':') {
        check_port(&host[colon..])?;
    }
    check_escapes(host, UrlComponent::Host)
}

/// Validates a host that is an IPv6 address, `[address]:port`.
fn check_literal(host: &str) -> Result<(), String> {
    let Some(end) = host.rfind(']') else {
        return Err("missing ']' in host".into());
    };
    check_port(&host[end + 1..])?;
    let address = &host[1..end];
    let (address, zone) = address.split_at(address.find("%25").unwrap_or(address.len()));
    check_escapes(address, UrlComponent::Host)?;
    check_escapes(zone, UrlComponent::Zone)?;
    match address.parse::<IpAddr>() {
        Ok(IpAddr::V6(_)) => Ok(()),
        Ok(IpAddr::V4(_)) => Err("invalid IP-literal".into()),
        Err(_) => {
            let address = quote(address.as_bytes());
            Err(format!(
                "invalid host: ParseAddr({address}): unable to parse IP"
            ))
        }
    }
}

/// Validates an optional port: nothing, or a colon and digits.
fn check_port(port: &str) -> Result<(), String> {
    let is_valid = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    if is_valid {
        Ok(())
    } else {
        Err(format!(
            "invalid port {} after host",
            quote(port.as_bytes())
        ))
    }
}

fn check_escapes(text: &str, part: UrlComponent) -> Result<(), String> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'%' {
            if matches!(part, UrlComponent::Host | UrlComponent::Zone)
                && byte < 0x80
                && !is_host_byte(byte)
            {
                let shown = quote(&[byte]);
                return Err(format!("invalid character {shown} in host name"));
            }
            at += 1;
            continue;
        }
        let escape = &bytes[at..bytes.len().min(at + 3)];
        let value = escape.get(1..3).and_then(hex);
        let is_valid = match (value, part) {
            (None, _) => false,
            (Some(b'%'), UrlComponent::Host | UrlComponent::Zone) => true,
            (Some(value), UrlComponent::Host) => value >= 0x80,
            (Some(value), UrlComponent::Zone) => value == b' ' || is_host_byte(value),
            (Some(_), _) => true,
        };
        if !is_valid {
            return Err(format!("invalid URL escape {}", quote(escape)));
        }
        at += 3;
    }
    Ok(())
}

fn hex(digits: &[u8]) -> Option<u8> {
    let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex)?;
    u8::from_str_radix(digits, 16).ok()
}

/// Returns whether a byte may occur unescaped in a host.
fn is_host_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_taken_or_refused_as_go_does() {
        for (text, expected) in [
            ("", Ok(("", ""))),
            ("http://u:p@a:80/x?y#z", Ok(("http", "a:80"))),
            ("a/b", Ok(("", ""))),
            ("mailto:x", Ok(("mailto", ""))),
            ("//a", Ok(("", "a"))),
            ("socks5://a:1:2", Ok(("socks5", "a:1:2"))),
            ("http://[::1]:80", Ok(("http", "[::1]:80"))),
            ("http://[fe80::1%25en0]/", Ok(("http", "[fe80::1%25en0]"))),
            (":x", Err("parse \":x\": missing protocol scheme")),
            ("a:80", Ok(("a", ""))),
            (
                "1:2",
                Err("parse \"1:2\": first path segment in URL cannot contain colon"),
            ),
            (
                "http://a:b",
                Err("parse \"http://a:b\": invalid port \":b\" after host"),
            ),
            ("http://a:1:2", Ok(("http", "a:1:2"))),
            (
                "http://a b",
                Err("parse \"http://a b\": invalid character \" \" in host name"),
            ),
            (
                "http://a/%zz",
                Err("parse \"http://a/%zz\": invalid URL escape \"%zz\""),
            ),
            (
                "http://[::1",
                Err("parse \"http://[::1\": missing ']' in host"),
            ),
            (
                "http://a#%g",
                Err("parse \"http://a#%g\": invalid URL escape \"%g\""),
            ),
        ] {
            let parsed = parse(text).map(|url| (url.scheme, url.host));
            let expected = expected.map_err(str::to_owned);
            assert_eq!(parsed, expected, "{text}");
        }
    }
}
