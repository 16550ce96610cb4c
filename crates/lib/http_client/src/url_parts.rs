//! Percent-encoding of the parts of a URL, with the characters that Go keeps.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters that are not escaped in a path, as in Go.
const PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'$')
    .remove(b'&')
    .remove(b'+')
    .remove(b',')
    .remove(b'/')
    .remove(b':')
    .remove(b';')
    .remove(b'=')
    .remove(b'@');

/// Characters that are not escaped in a host, as in Go, and the `%` before the zone of an address.
const HOST: &AsciiSet = &PATH
    .add(b'/')
    .add(b'@')
    .remove(b'!')
    .remove(b'"')
    .remove(b'%')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'<')
    .remove(b'>')
    .remove(b'[')
    .remove(b']');

/// Percent-encodes a path for a URL, except for the characters that Go keeps.
pub fn encode_path(path: &str) -> String {
    utf8_percent_encode(path, PATH).to_string()
}

/// Percent-encodes a host with an optional port for a URL, except for the characters that Go keeps.
pub fn encode_host(host: &str) -> String {
    utf8_percent_encode(host, HOST).to_string()
}
