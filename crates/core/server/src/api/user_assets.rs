//! `/user`: serves the files of `--web.user-assets` like Go's file server: `index.html` or a
//! listing for folders, ranges, and conditional requests.

use crate::app::ServerApp;
use crate::files::body::FileBody;
use crate::files::{self, FoundFile, media};
use crate::http::blocking::run_blocking;
use crate::http::failure::{ApiFailure, FailureCause};
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{self, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::Response;
use firn_model::error::ErrorKind;
use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Path prefix of the files.
const PREFIX: &str = "/user";

/// File that is served for a folder, if it exists.
const INDEX: &str = "/index.html";

/// Maximum number of entries in a folder listing.
const LISTED_MAX: usize = 10_000;

/// Returns the file or folder at the path of the request. Files are accessed on a blocking thread.
/// Answers 404 if no folder is configured.
pub(crate) async fn file(app: ServerApp, request: Request) -> Response {
    let Some(folder) = app.parts.web.user_assets.clone() else {
        return not_found();
    };
    let whole = request.uri().path();
    let path = super::form::unescape_path(whole.strip_prefix(PREFIX).unwrap_or(whole));
    let asked = match path {
        Ok(path) => AssetRequest {
            path,
            query: request.uri().query().map(str::to_owned),
            has_body: request.method() != Method::HEAD,
            headers: request.headers().clone(),
        },
        Err(failure) => return failure.into_plain(),
    };
    let answered = run_blocking(move || asked.answer(&folder)).await;
    answered.unwrap_or_else(ApiFailure::into_plain)
}

fn not_found() -> Response {
    let cause = FailureCause::Request(ErrorKind::NotFound);
    ApiFailure::new(cause, "404 page not found").into_plain()
}

fn failed(kind: io::ErrorKind) -> Response {
    match kind {
        io::ErrorKind::NotFound => not_found(),
        io::ErrorKind::PermissionDenied => {
            ApiFailure::new(FailureCause::Forbidden, "403 Forbidden").into_plain()
        }
        _ => ApiFailure::internal("500 Internal Server Error").into_plain(),
    }
}

/// The parts of a request that are relevant for serving a file. Passed to a blocking thread.
struct AssetRequest {
    /// Decoded path after the prefix.
    path: String,
    query: Option<String>,
    has_body: bool,
    headers: HeaderMap,
}

impl AssetRequest {
    fn answer(&self, folder: &Path) -> Response {
        if self.path.is_empty() {
            return self.redirect("user/");
        }
        if self.path.ends_with(INDEX) {
            return self.redirect("./");
        }
        let found = match files::find(folder, &self.path) {
            Ok(found) => found,
            Err(e) => return failed(e.kind()),
        };
        let base = self.path.trim_end_matches('/');
        let base = base.rsplit('/').next().unwrap_or_default();
        match (found.metadata.is_dir(), self.path.ends_with('/')) {
            (true, false) => self.redirect(&format!("{}/", escape(base))),
            (false, true) => self.redirect(&format!("../{}", escape(base))),
            (false, false) => self.content(&found),
            (true, true) => match files::find(folder, &format!("{}{INDEX}", self.path)) {
                Ok(index) if index.metadata.is_file() => self.content(&index),
                _ => self.list(&found),
            },
        }
    }

    fn redirect(&self, to: &str) -> Response {
        let query = self.query.as_ref().map(|query| format!("?{query}"));
        let to = format!("{to}{}", query.unwrap_or_default());
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        set(&mut response, header::LOCATION, &to);
        response
    }

    /// Returns the file, the requested range of it, or 304 if it is unchanged.
    fn content(&self, found: &FoundFile) -> Response {
        let modified = modified(found);
        if let Some(response) = self.unchanged(modified) {
            return response;
        }
        let len = found.metadata.len();
        let part = match self.range(modified, len) {
            Ok(part) => part,
            Err(why) => return unsatisfiable_response(why, len),
        };
        let range = part.clone().unwrap_or(0..len);
        let opened = found
            .open()
            .and_then(|file| detect_media_type(found, file, &range));
        let (file, media) = match opened {
            Ok(opened) => opened,
            Err(e) => return failed(e.kind()),
        };
        let bytes = range.end - range.start;
        let mut response = Response::new(if self.has_body {
            Body::new(FileBody::new(file, bytes))
        } else {
            Body::empty()
        });
        if part.is_some() {
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
            let last = range.end.saturating_sub(1);
            let shown = format!("bytes {}-{last}/{len}", range.start);
            set(&mut response, header::CONTENT_RANGE, &shown);
        }
        set(&mut response, header::CONTENT_TYPE, media);
        set(&mut response, header::CONTENT_LENGTH, &bytes.to_string());
        set(&mut response, header::ACCEPT_RANGES, "bytes");
        if let Some(modified) = modified {
            set(&mut response, header::LAST_MODIFIED, &date(modified));
        }
        response
    }

    /// Returns a 304 response if the client's copy is not older than `modified`.
    fn unchanged(&self, modified: Option<SystemTime>) -> Option<Response> {
        let (known, modified) = (self.date(header::IF_MODIFIED_SINCE)?, modified?);
        if seconds(modified) > seconds(known) {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        set(&mut response, header::LAST_MODIFIED, &date(modified));
        Some(response)
    }

    /// Parses the date in a header; `None` if it is missing or invalid.
    fn date(&self, name: HeaderName) -> Option<SystemTime> {
        httpdate::parse_http_date(self.headers.get(name)?.to_str().ok()?).ok()
    }

    /// Returns the requested range of a file of `len` bytes; `None` for the whole file, also if it
    /// has changed since the client's copy.
    fn range(
        &self,
        modified: Option<SystemTime>,
        len: u64,
    ) -> Result<Option<Range<u64>>, &'static str> {
        let Some(range) = self.headers.get(header::RANGE) else {
            return Ok(None);
        };
        let is_same = if self.headers.contains_key(header::IF_RANGE) {
            let known = self.date(header::IF_RANGE).map(seconds);
            known.is_some() && known == modified.map(seconds)
        } else {
            true
        };
        if is_same {
            parse_range(range.to_str().unwrap_or_default(), len)
        } else {
            Ok(None)
        }
    }

    /// Returns a page that lists the entries of a folder as links, sorted by name.
    fn list(&self, found: &FoundFile) -> Response {
        let modified = modified(found);
        if let Some(response) = self.unchanged(modified) {
            return response;
        }
        let Some(mut names) = list_folder(&found.path) else {
            return ApiFailure::internal("Error reading directory").into_plain();
        };
        names.sort_unstable();
        let mut page = String::from(
            "<!doctype html>\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n",
        );
        for name in names {
            let link = escape(&name);
            // A name with a colon would be interpreted as a URL with a scheme.
            let here = if link.contains(':') { "./" } else { "" };
            let (link, name) = (escape_html(&link), escape_html(&name));
            let _ = writeln!(page, "<a href=\"{here}{link}\">{name}</a>");
        }
        page.push_str("</pre>\n");
        let mut response = Response::new(Body::from(page));
        set(
            &mut response,
            header::CONTENT_TYPE,
            "text/html; charset=utf-8",
        );
        if let Some(modified) = modified {
            set(&mut response, header::LAST_MODIFIED, &date(modified));
        }
        response
    }
}

/// Returns the names of a folder's entries, those of folders with a trailing slash. Returns `None`
/// if the folder cannot be read or has too many entries.
fn list_folder(folder: &Path) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).ok()? {
        let entry = entry.ok()?;
        if names.len() == LISTED_MAX {
            return None;
        }
        let slash = match entry.file_type() {
            Ok(kind) if kind.is_dir() => "/",
            _ => "",
        };
        names.push(format!("{}{slash}", entry.file_name().to_string_lossy()));
    }
    Some(names)
}

/// Returns the file, positioned at the start of `range`, and its media type.
fn detect_media_type(
    found: &FoundFile,
    mut file: File,
    range: &Range<u64>,
) -> io::Result<(File, &'static str)> {
    let media = match media::by_name(&found.path) {
        Some(media) => media,
        None => {
            let mut start = Vec::new();
            let most = media::START_BYTES as u64;
            (&mut file).take(most).read_to_end(&mut start)?;
            media::by_start(&start)
        }
    };
    file.seek(SeekFrom::Start(range.start))?;
    Ok((file, media))
}

/// Parses a range header for a file of `len` bytes. Returns `None` for multiple ranges and for an
/// empty file, which are answered with the whole file.
fn parse_range(text: &str, len: u64) -> Result<Option<Range<u64>>, &'static str> {
    const INVALID: &str = "invalid range";
    let ranges = text.strip_prefix("bytes=").ok_or(INVALID)?;
    if ranges.contains(',') || len == 0 {
        return Ok(None);
    }
    let (start, end) = ranges.split_once('-').ok_or(INVALID)?;
    let (start, end) = (start.trim(), end.trim());
    let number = |text: &str| {
        if text.bytes().all(|b| b.is_ascii_digit()) {
            text.parse::<u64>().map_err(|_| INVALID)
        } else {
            Err(INVALID)
        }
    };
    if start.is_empty() {
        let last = number(end)?.min(len);
        return Ok(Some(len - last..len));
    }
    let first = number(start)?;
    if first >= len {
        return Err("invalid range: failed to overlap");
    }
    if end.is_empty() {
        return Ok(Some(first..len));
    }
    let last = number(end)?;
    if first > last {
        Err(INVALID)
    } else {
        Ok(Some(first..last.saturating_add(1).min(len)))
    }
}

/// Returns a 416 response for a range that cannot be satisfied, with the length of the file.
fn unsatisfiable_response(why: &'static str, len: u64) -> Response {
    let mut response = Response::new(Body::from(format!("{why}\n")));
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    set(
        &mut response,
        header::CONTENT_RANGE,
        &format!("bytes */{len}"),
    );
    set(
        &mut response,
        header::CONTENT_TYPE,
        "text/plain; charset=utf-8",
    );
    set(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    response
}

fn set(response: &mut Response, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Returns the modification time of a file; `None` if the system does not provide it or it is not
/// after the epoch.
fn modified(found: &FoundFile) -> Option<SystemTime> {
    let modified = found.metadata.modified().ok();
    modified.filter(|time| *time > UNIX_EPOCH)
}

fn seconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    since.as_secs()
}

fn date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

/// Escapes a name for use in a URL path, like Go's file server.
fn escape(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b',' | b'/' | b':' | b';' | b'='
            | b'@' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

/// Escapes a name for HTML text or attributes, like Go's file server.
fn escape_html(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_of_a_header_is_gos() {
        let cases = [
            ("bytes=0-4", 10, Ok(Some(0..5))),
            ("bytes=5-", 10, Ok(Some(5..10))),
            ("bytes=-3", 10, Ok(Some(7..10))),
            ("bytes=-30", 10, Ok(Some(0..10))),
            ("bytes=8-99", 10, Ok(Some(8..10))),
            ("bytes=0-1,3-4", 10, Ok(None)),
            ("bytes=0-4", 0, Ok(None)),
            ("bytes=10-", 10, Err("invalid range: failed to overlap")),
            ("bytes=4-3", 10, Err("invalid range")),
            ("bytes=a-3", 10, Err("invalid range")),
            ("bytes=-", 10, Err("invalid range")),
            ("lines=0-3", 10, Err("invalid range")),
        ];
        for (text, len, want) in cases {
            assert_eq!(parse_range(text, len), want, "{text}");
        }
    }

    #[test]
    fn name_in_a_list_is_a_link_to_itself() {
        assert_eq!(escape("a b?c#d%&:é"), "a%20b%3Fc%23d%25&:%C3%A9");
        assert_eq!(escape_html("<a&'b\">"), "&lt;a&amp;&#39;b&#34;&gt;");
    }
}
