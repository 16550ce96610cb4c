//! Redirects, followed as in Go's `net/http/client.go`, with the URL references of `net/url`.
//!
//! | status | next request |
//! |---|---|
//! | 301, 302, 303 | GET without a body |
//! | 307, 308 | the same method and body |
//!
//! Invariant: a request that has left the first server contains no credentials, and does not get
//! them back.

use super::auth::basic_header_from_url;
use bytes::Bytes;
use firn_model::error::Error;
use hyper::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LOCATION, CONTENT_TYPE, COOKIE,
    HeaderMap, HeaderName, HeaderValue, LOCATION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, REFERER,
    WWW_AUTHENTICATE,
};
use hyper::{Method, Request, StatusCode, Uri};
use percent_encoding::percent_decode;
use std::fmt::Write;
use std::net::Ipv6Addr;

/// Maximum number of requests in a chain of redirects, as in Go.
pub(super) const REQUESTS_MAX: usize = 10;

/// Headers that describe a body, which are removed with it.
const OF_BODY: [HeaderName; 4] = [
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_LOCATION,
    CONTENT_TYPE,
];

/// Headers that must not be sent to another host.
const SENSITIVE: [HeaderName; 6] = [
    AUTHORIZATION,
    COOKIE,
    HeaderName::from_static("cookie2"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    WWW_AUTHENTICATE,
];

/// One request in a chain of redirects; the first one is the request of the caller.
#[derive(Debug)]
pub(super) struct RedirectHop {
    pub(super) method: Method,
    pub(super) uri: Uri,
    /// Headers of the caller that this hop may receive.
    pub(super) headers: HeaderMap,
    has_body: bool,
    /// Whether the host may receive credentials.
    pub(super) is_trusted: bool,
    first: Uri,
}

impl RedirectHop {
    pub(super) fn new(method: Method, uri: Uri, headers: HeaderMap) -> Self {
        Self {
            first: uri.clone(),
            method,
            uri,
            headers,
            has_body: true,
            is_trusted: true,
        }
    }

    /// Builds the request of this hop. `body` is the body of the first request.
    pub(super) fn build_request(&self, body: &Bytes) -> Result<Request<Bytes>, Error> {
        let (uri, user) = strip_user(&self.uri);
        let mut request = Request::new(if self.has_body {
            body.clone()
        } else {
            Bytes::new()
        });
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        if let Some(user) = user {
            let headers = request.headers_mut();
            headers.insert(AUTHORIZATION, basic_header_from_url(&user)?);
        }
        Ok(request)
    }

    /// Advances to the target of a redirect. Returns false if the response is not a redirect.
    pub(super) fn follow(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
    ) -> Result<bool, String> {
        let keeps_body = match status.as_u16() {
            301..=303 => false,
            307 | 308 => true,
            _ => return Ok(false),
        };
        let location = headers.get(LOCATION).map(HeaderValue::as_bytes);
        let Some(location) = location.filter(|location| !location.is_empty()) else {
            return Ok(false);
        };
        let next = resolve(&self.uri, location).map_err(|e| {
            let shown = String::from_utf8_lossy(location);
            format!("failed to parse Location header {shown:?}: {e}")
        })?;
        if !keeps_body {
            self.method = Method::GET;
            self.has_body = false;
            OF_BODY
                .iter()
                .for_each(|name| drop(self.headers.remove(name)));
        }
        if self.is_trusted && !is_same_server(&next, &self.first) {
            self.is_trusted = false;
            SENSITIVE
                .iter()
                .for_each(|name| drop(self.headers.remove(name)));
        }
        self.set_referer(&next);
        self.uri = next;
        Ok(true)
    }

    /// Sets the `Referer` header to the previous URL, except for a redirect from HTTPS to HTTP.
    fn set_referer(&mut self, next: &Uri) {
        let is_downgrade =
            self.uri.scheme_str() == Some("https") && next.scheme_str() == Some("http");
        let (bare, _) = strip_user(&self.uri);
        self.headers.remove(REFERER);
        if !is_downgrade && let Ok(value) = HeaderValue::from_str(&bare.to_string()) {
            self.headers.insert(REFERER, value);
        }
    }
}

/// Whether `uri` is served by the server of `first`: the same host and port, or the same host over
/// TLS.
fn is_same_server(uri: &Uri, first: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().unwrap_or_default().to_ascii_lowercase();
    let is_secure = |uri: &Uri| uri.scheme_str() == Some("https");
    let default_port = |uri: &Uri| if is_secure(uri) { 443 } else { 80 };
    let port = |uri: &Uri| uri.port_u16().unwrap_or(default_port(uri));
    host(uri) == host(first) && (is_secure(uri) || port(uri) == port(first))
}

/// Splits `uri` into the URL without user and password, and those if there were any.
fn strip_user(uri: &Uri) -> (Uri, Option<String>) {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let Some((user, host)) = authority.rsplit_once('@') else {
        return (uri.clone(), None);
    };
    let mut parts = uri.clone().into_parts();
    parts.authority = host.parse().ok();
    match Uri::from_parts(parts) {
        Ok(bare) => (bare, Some(user.to_owned())),
        Err(_) => (uri.clone(), None),
    }
}

/// Resolves a reference in the response of `base` to an absolute URL.
fn resolve(base: &Uri, reference: &[u8]) -> Result<Uri, String> {
    if reference.iter().any(|b| b.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".into());
    }
    let mut parts = reference.splitn(2, |b| *b == b'#');
    let reference = parts.next().unwrap_or_default();
    check_escapes(parts.next().unwrap_or_default())?;
    let (scheme, rest) = split_scheme(reference)?;
    let scheme = scheme.map(|scheme| scheme.to_ascii_lowercase());
    if let Some(scheme) = &scheme
        && !matches!(scheme.as_slice(), b"http" | b"https")
    {
        let shown = String::from_utf8_lossy(scheme);
        return Err(format!("unsupported protocol scheme {shown:?}"));
    }
    let (rest, query) = match rest.iter().position(|b| *b == b'?') {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let (authority, path) = match rest.strip_prefix(b"//") {
        // Without a scheme, three slashes begin a path.
        Some(after) if scheme.is_some() || !after.starts_with(b"/") => {
            let end = after.iter().position(|b| *b == b'/');
            let (authority, path) = after.split_at(end.unwrap_or(after.len()));
            let is_none = scheme.is_none() && authority.is_empty();
            ((!is_none).then_some(authority), path)
        }
        _ => (None, rest),
    };
    let scheme_text = match &scheme {
        Some(scheme) => String::from_utf8_lossy(scheme).into_owned(),
        None => base.scheme_str().unwrap_or("http").to_owned(),
    };
    let is_absolute = scheme.is_some() || authority.is_some();
    if is_absolute && authority.is_none_or(<[u8]>::is_empty) {
        return Err("http: no Host in request URL".into());
    }
    let first_segment = path.split(|b| *b == b'/').next().unwrap_or_default();
    if !is_absolute && first_segment.contains(&b':') {
        return Err("first path segment in URL cannot contain colon".into());
    }
    let path = escape_path(path)?;
    let own_query = query.map(escape_query);
    let (path, query) = match path.as_str() {
        path if is_absolute => (remove_dot_segments("", path), own_query),
        "" if query.is_none() => {
            let path = remove_dot_segments(base.path(), "");
            (path, base.query().map(str::to_owned))
        }
        path => (remove_dot_segments(base.path(), path), own_query),
    };
    let authority = match authority {
        Some(authority) => decode_authority(authority)?,
        None => base.authority().map_or("", |a| a.as_str()).to_owned(),
    };
    let query = query.map_or(String::new(), |query| format!("?{query}"));
    let text = format!("{scheme_text}://{authority}{path}{query}");
    text.parse().map_err(|e| format!("{e}"))
}

/// Splits a reference into its scheme, if any, and the rest.
fn split_scheme(reference: &[u8]) -> Result<(Option<&[u8]>, &[u8]), String> {
    let is_of_scheme = |b: u8| b.is_ascii_alphanumeric() || b"+-.".contains(&b);
    let end = reference.iter().position(|b| !is_of_scheme(*b));
    match end {
        Some(0) if reference[0] == b':' => Err("missing protocol scheme".into()),
        Some(end) if reference[end] == b':' && reference[0].is_ascii_alphabetic() => {
            Ok((Some(&reference[..end]), &reference[end + 1..]))
        }
        _ => Ok((None, reference)),
    }
}

fn decode_authority(authority: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(authority).into_owned();
    let host = text
        .rsplit_once('@')
        .map_or(text.as_str(), |(_, host)| host);
    let port = match host.rsplit_once(']') {
        Some((_, after)) => after,
        None => host.find(':').map_or("", |at| &host[at..]),
    };
    let digits = port.strip_prefix(':').unwrap_or(port);
    if !digits.bytes().all(|b| b.is_ascii_digit()) || !port.is_empty() && !port.starts_with(':') {
        return Err(format!("invalid port {port:?} after host"));
    }
    if let Some((inner, _)) = host.strip_prefix('[').and_then(|h| h.split_once(']'))
        && inner.parse::<Ipv6Addr>().is_err()
    {
        return Err(format!("invalid host {host:?}"));
    }
    Ok(text)
}

/// Validates the escapes in a path, and escapes characters that a URL cannot contain.
fn escape_path(path: &[u8]) -> Result<String, String> {
    check_escapes(path)?;
    if path.iter().all(|b| is_valid_in_path(*b)) {
        return Ok(String::from_utf8_lossy(path).into_owned());
    }
    // As in Go, unnecessary escapes are lost in this case.
    let decoded: Vec<u8> = percent_decode(path).collect();
    Ok(escape(&decoded, |b| {
        b.is_ascii_alphanumeric() || b"-_.~$&+,/:;=@".contains(&b)
    }))
}

fn check_escapes(text: &[u8]) -> Result<(), String> {
    let is_escape = |at: usize| {
        let digits = text.get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let bad = (0..text.len()).find(|at| text[*at] == b'%' && !is_escape(*at));
    match bad {
        None => Ok(()),
        Some(at) => {
            let shown = String::from_utf8_lossy(&text[at..text.len().min(at + 3)]);
            Err(format!("invalid URL escape {shown:?}"))
        }
    }
}

fn is_valid_in_path(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%/".contains(&byte)
}

/// Returns a query unchanged, except that bytes outside of ASCII and bytes that would break the
/// request are escaped.
fn escape_query(query: &[u8]) -> String {
    escape(query, |b| b.is_ascii_graphic() && !b"\"<>".contains(&b))
}

fn escape(text: &[u8], is_kept: impl Fn(u8) -> bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text {
        if is_kept(*byte) {
            escaped.push(char::from(*byte))
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}

/// Resolves the path `reference` relative to the path `base` and removes `.` and `..`.
fn remove_dot_segments(base: &str, reference: &str) -> String {
    let full = match reference {
        "" => base.to_owned(),
        rooted if rooted.starts_with('/') => rooted.to_owned(),
        relative => {
            let folder = base.rfind('/').map_or("", |at| &base[..=at]);
            format!("{folder}{relative}")
        }
    };
    if full.is_empty() {
        return full;
    }
    let (mut path, mut is_first) = ("/".to_owned(), true);
    for segment in full.split('/') {
        match segment {
            "." => is_first = false,
            ".." => {
                let end = path.rfind('/').unwrap_or_default();
                path.truncate(end.max(1));
                is_first = path.len() == 1;
            }
            other => {
                if !is_first {
                    path.push('/');
                }
                path.push_str(other);
                is_first = false;
            }
        }
    }
    if matches!(full.rsplit('/').next(), Some("." | "..")) {
        path.push('/');
    }
    match path.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => rest.to_owned(),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_go_resolves_them() {
        let mut wrong = Vec::new();
        for row in include_str!("tests/redirects.tsv")
            .lines()
            .filter(|row| !row.starts_with("# "))
        {
            let [base, reference, want] = row.split('\t').collect::<Vec<_>>().try_into().unwrap();
            let reference = reference.replace("\\t", "\t");
            let got = resolve(&base.parse().unwrap(), reference.as_bytes());
            let shown = match &got {
                Ok(uri) => strip_user(uri).0.to_string(),
                Err(_) => "error".to_owned(),
            };
            if shown != want {
                wrong.push(format!("{base} {reference:?}: {got:?}, in Go {want}"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{} wrong\n{}",
            wrong.len(),
            wrong.join("\n")
        );
    }
}
