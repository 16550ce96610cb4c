//! Escapes values for URLs. URLs that could run a script are replaced; existing escapes are kept.

use super::text::FAILSAFE;
use std::io::Write;

/// Returns the URL if it cannot run a script, else the failsafe as a fragment.
pub(super) fn filter_url(bytes: &[u8]) -> Vec<u8> {
    if is_safe(bytes) {
        bytes.to_vec()
    } else {
        [b"#", FAILSAFE].concat()
    }
}

/// Escapes text for a component of a URL, such as a query parameter.
pub(super) fn escape_component(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 16);
    push(&mut out, bytes, false);
    out
}

/// Escapes a complete URL, keeping its separators and existing escapes, so that applying it twice
/// has no effect.
pub(super) fn normalize_url(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 16);
    push(&mut out, bytes, true);
    out
}

/// Returns whether a URL has no scheme, or one that cannot run a script.
fn is_safe(url: &[u8]) -> bool {
    let Some(colon) = url.iter().position(|b| *b == b':') else {
        return true;
    };
    let scheme = &url[..colon];
    let known: [&[u8]; 3] = [b"http", b"https", b"mailto"];
    scheme.contains(&b'/') || known.iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

fn push(out: &mut Vec<u8>, bytes: &[u8], is_whole: bool) {
    for (at, byte) in bytes.iter().enumerate() {
        let is_plain = match byte {
            b'!' | b'#' | b'$' | b'&' | b'*' | b'+' | b',' | b'/' | b':' | b';' | b'=' | b'?'
            | b'@' | b'[' | b']' => is_whole,
            b'-' | b'.' | b'_' | b'~' => true,
            b'%' => is_whole && starts_escape(&bytes[at..]),
            byte => byte.is_ascii_alphanumeric(),
        };
        if is_plain {
            out.push(*byte)
        } else {
            // Writing to a vector never fails.
            drop(write!(out, "%{byte:02x}"))
        }
    }
}

fn starts_escape(bytes: &[u8]) -> bool {
    matches!(bytes, [_, high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit())
}

/// Escapes a `srcset` value: URLs with optional sizes, separated by commas.
pub(super) fn escape_source_set(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 16);
    for (index, source) in bytes.split(|b| *b == b',').enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_source(&mut out, source);
    }
    out
}

fn push_source(out: &mut Vec<u8>, source: &[u8]) {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\x0c' | b'\r');
    let start = source.iter().take_while(|b| is_space(b)).count();
    let len = source[start..].iter().take_while(|b| !is_space(b)).count();
    let (url, size) = source[start..].split_at(len);
    let is_size = |byte: &u8| is_space(byte) || byte.is_ascii_alphanumeric();
    if !is_safe(url) || !size.iter().all(is_size) {
        out.push(b'#');
        return out.extend_from_slice(FAILSAFE);
    }
    out.extend_from_slice(&source[..start]);
    push(out, url, true);
    out.extend_from_slice(size);
}
