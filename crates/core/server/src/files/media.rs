//! Detects the media type of a file by its extension or, failing that, by its first bytes, like
//! Go's `net/http`. Audio and video are not detected by content, because such files have
//! extensions.

use std::path::Path;

/// Number of bytes that are inspected if the extension is unknown.
pub(crate) const START_BYTES: usize = 512;

const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const OCTETS: &str = "application/octet-stream";

/// Media types by file extension in lower case.
const BY_NAME: [(&str, &str); 38] = [
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("eot", "application/vnd.ms-fontobject"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", HTML),
    ("html", HTML),
    ("ico", "image/vnd.microsoft.icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("ogg", "audio/ogg"),
    ("otf", "font/otf"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("ttf", "font/ttf"),
    ("txt", PLAIN),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webmanifest", "application/manifest+json"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xml", "text/xml; charset=utf-8"),
    ("zip", "application/zip"),
];

/// Media types by the first bytes of a file.
const BY_START: [(&[u8], &str); 20] = [
    (b"%PDF-", "application/pdf"),
    (b"%!PS-Adobe-", "application/postscript"),
    (b"\xfe\xff", "text/plain; charset=utf-16be"),
    (b"\xff\xfe", "text/plain; charset=utf-16le"),
    (b"\xef\xbb\xbf", PLAIN),
    (b"\0\0\x01\0", "image/x-icon"),
    (b"\0\0\x02\0", "image/x-icon"),
    (b"BM", "image/bmp"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\0\x01\0\0", "font/ttf"),
    (b"OTTO", "font/otf"),
    (b"ttcf", "font/collection"),
    (b"wOFF", "font/woff"),
    (b"wOF2", "font/woff2"),
    (b"\x1f\x8b\x08", "application/x-gzip"),
    (b"PK\x03\x04", "application/zip"),
    (b"\0asm", "application/wasm"),
];

/// Tags with which an HTML document may start, followed by a space or the end of the tag.
const TAGS: [&str; 17] = [
    "!doctype html",
    "html",
    "head",
    "script",
    "iframe",
    "h1",
    "div",
    "font",
    "table",
    "a",
    "style",
    "title",
    "b",
    "body",
    "br",
    "p",
    "!--",
];

/// Returns the media type for the file extension; `None` if it is unknown.
pub(crate) fn by_name(path: &Path) -> Option<&'static str> {
    let end = path.extension()?.to_str()?.to_ascii_lowercase();
    let found = BY_NAME.iter().find(|(known, _)| *known == end)?;
    Some(found.1)
}

/// Returns the media type of content that starts with `start`, like Go's `http.DetectContentType`.
pub(crate) fn by_start(start: &[u8]) -> &'static str {
    let start = &start[..start.len().min(START_BYTES)];
    let is_blank = |byte: &u8| matches!(byte, b'\t' | b'\n' | b'\x0c' | b'\r' | b' ');
    let blanks = start.iter().take_while(|b| is_blank(b)).count();
    let text = &start[blanks..];
    if begins_page(text) {
        return HTML;
    }
    if text.starts_with(b"<?xml") {
        return "text/xml; charset=utf-8";
    }
    if let Some((_, media)) = BY_START.iter().find(|(known, _)| start.starts_with(known)) {
        return media;
    }
    if start.starts_with(b"RIFF") && start.get(8..14) == Some(b"WEBPVP") {
        return "image/webp";
    }
    let is_binary = |byte: &u8| matches!(byte, 0..=8 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f);
    if text.iter().any(is_binary) {
        OCTETS
    } else {
        PLAIN
    }
}

fn begins_page(text: &[u8]) -> bool {
    let Some(behind) = text.strip_prefix(b"<") else {
        return false;
    };
    TAGS.iter().any(|tag| {
        let Some((name, rest)) = behind.split_at_checked(tag.len()) else {
            return false;
        };
        // Like Go, requires a space or `>` even after the start of a comment.
        name.eq_ignore_ascii_case(tag.as_bytes()) && matches!(rest, [b' ' | b'>', ..])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_of_a_name_is_gos() {
        let cases = [
            ("a.css", Some("text/css; charset=utf-8")),
            ("a.b/c.HTML", Some("text/html; charset=utf-8")),
            ("a.js", Some("text/javascript; charset=utf-8")),
            ("a.svg", Some("image/svg+xml")),
            ("a", None),
            ("a.unknown", None),
            (".css", None),
        ];
        for (name, want) in cases {
            assert_eq!(by_name(Path::new(name)), want, "{name}");
        }
    }

    #[test]
    fn media_of_bytes_is_gos() {
        let cases: [(&[u8], &str); 14] = [
            (b"", PLAIN),
            (b"text", PLAIN),
            (b"\n\t <!DOCTYPE html><p>", HTML),
            (b"<!doctype html>", HTML),
            (b"<html>", HTML),
            (b"<htmlx>", PLAIN),
            (b"<p class", HTML),
            (b"<!-- c", HTML),
            (b"<!--c", PLAIN),
            (b"<?xml version", "text/xml; charset=utf-8"),
            (b"\x89PNG\r\n\x1a\nx", "image/png"),
            (b"a\0b", OCTETS),
            (b"a\x1bb", PLAIN),
            ("ünï".as_bytes(), PLAIN),
        ];
        for (start, want) in cases {
            assert_eq!(by_start(start), want, "{start:?}");
        }
    }
}
