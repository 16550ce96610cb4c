//! PEM blocks, found by the rules of Go's `encoding/pem`: incomplete blocks are skipped, and so is
//! text between blocks.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"\n-----END ";
const DASHES: &[u8] = b"-----";

/// Base64 decoder that ignores the unused bits after the last byte, as Go does.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// A decoded PEM block, with its label and whether it has headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PemBlock {
    /// Label of the block, such as `CERTIFICATE` or `RSA PRIVATE KEY`.
    pub label: String,
    pub has_headers: bool,
    pub der: Vec<u8>,
}

/// Iterator over the blocks of a text, in order.
pub(crate) struct PemBlocks<'p>(pub &'p [u8]);

impl Iterator for PemBlocks<'_> {
    type Item = PemBlock;

    fn next(&mut self) -> Option<PemBlock> {
        // Each iteration advances past another END line, so the loop terminates.
        loop {
            let end = find(self.0, END)?;
            let (before, after) = self.0.split_at(end);
            let after = after.get(END.len()..)?;
            let block = decode_block(before, after);
            self.0 = match block {
                Some(_) => split_line(after).1,
                None => after,
            };
            if block.is_some() {
                return block;
            }
        }
    }
}

/// Decodes the block that begins last in `before`. `after` is the text after the `-----END `
/// marker.
fn decode_block(before: &[u8], after: &[u8]) -> Option<PemBlock> {
    let begin = before.windows(BEGIN.len()).rposition(|w| w == BEGIN)?;
    if begin > 0 && before.get(begin - 1) != Some(&b'\n') {
        return None;
    }
    let (first, mut body) = split_line(before.get(begin + BEGIN.len()..)?);
    let label = first.strip_suffix(DASHES)?;
    let trailer = split_line(after).0;
    if trailer.strip_suffix(DASHES)? != label {
        return None;
    }
    let mut has_headers = false;
    loop {
        let (header, rest) = split_line(body);
        if !header.contains(&b':') {
            break;
        }
        has_headers = true;
        body = rest;
    }
    let is_text = |b: &u8| !matches!(b, b' ' | b'\t' | b'\r' | b'\n');
    let text: Vec<u8> = body.iter().copied().filter(is_text).collect();
    Some(PemBlock {
        label: String::from_utf8_lossy(label).into_owned(),
        has_headers,
        der: BASE64.decode(text).ok()?,
    })
}

/// Splits off the first line, without its line end and trailing spaces.
fn split_line(text: &[u8]) -> (&[u8], &[u8]) {
    let (line, rest) = match text.iter().position(|b| *b == b'\n') {
        Some(end) => {
            let line = text.get(..end).unwrap_or_default();
            (
                line.strip_suffix(b"\r").unwrap_or(line),
                text.get(end + 1..),
            )
        }
        None => (text, None),
    };
    let rest = rest.unwrap_or_default();
    let kept = line.iter().rposition(|b| !matches!(b, b' ' | b'\t'));
    (
        line.get(..kept.map_or(0, |last| last + 1))
            .unwrap_or_default(),
        rest,
    )
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, bool, &[u8])]) {
        let found: Vec<_> = PemBlocks(text.as_bytes()).collect();
        let found: Vec<_> = found
            .iter()
            .map(|b| (&b.label[..], b.has_headers, &b.der[..]))
            .collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn blocks_are_found_as_go_finds_them() {
        let a: (&str, bool, &[u8]) = ("A", false, b"abc");
        for (text, expected) in [
            ("-----BEGIN A-----\nYWJj\n-----END A-----\n", &[a][..]),
            ("-----BEGIN A-----\r\nYWJj\r\n-----END A-----\r\n", &[a]),
            ("-----BEGIN A-----\nYW\n Jj\t\n-----END A-----", &[a]),
            (
                "text\n-----BEGIN A-----\nYWJj\n-----END A----- \nmore",
                &[a],
            ),
            // Not at the beginning of a line, with text after the end marker, or with a different
            // end label.
            ("x-----BEGIN A-----\nYWJj\n-----END A-----\n", &[]),
            ("-----BEGIN A-----\nYWJj\n-----END A-----x\n", &[]),
            ("-----BEGIN A-----\nYWJj\n-----END B-----\n", &[]),
            ("-----BEGIN A-----\nYWJj\n-----END A\n", &[]),
            ("-----BEGIN A-----\nYWJj", &[]),
            ("-----BEGIN A-----\nYW!j\n-----END A-----\n", &[]),
            ("-----BEGIN A-----\nYWI\n-----END A-----\n", &[]),
            ("-----BEGIN A-----\n-----END A-----\n", &[("A", false, b"")]),
            (
                "-----BEGIN A-----\nK: v\n\nYWJj\n-----END A-----\n",
                &[("A", true, b"abc")],
            ),
            // Blocks without an end and blocks with invalid base64 are skipped.
            (
                "-----BEGIN B-----\nYWJj\n-----BEGIN A-----\nYWJj\n-----END A-----\n",
                &[a],
            ),
            (
                "-----BEGIN B-----\n!\n-----END B-----\n-----BEGIN A-----\nYWJj\n-----END A-----\n",
                &[a],
            ),
        ] {
            check(text, expected);
        }
    }
}
