//! Requests from pages of other origins: CORS for reading responses, and rejection of requests that
//! change state.
//!
//! Browsers send `Origin` with every POST of a page. A request without the header was not sent by a
//! page, so it cannot misuse a user's cookies or network position, and is allowed.

use crate::http::failure::{ApiFailure, FailureCause};
use crate::parts::WebSettings;
use axum::http::{HeaderMap, HeaderValue, header};

/// Adds upstream's CORS headers if the settings allow the page at `origin` to read the response.
pub(crate) fn allow(web: &WebSettings, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let (Some(pattern), Some(origin)) = (&web.cors_origin, origin) else {
        return;
    };
    let allowed = [
        (
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            "Accept, Authorization, Content-Type, Origin",
        ),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, OPTIONS"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    ];
    for (name, value) in allowed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if pattern.as_str() == "^(?:.*)$" {
        let everyone = HeaderValue::from_static("*");
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, everyone);
    } else if origin.to_str().is_ok_and(|text| pattern.is_match(text)) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
    }
}

/// Rejects a request that changes state if a page of another origin sent it.
pub(crate) fn check_same(web: &WebSettings, headers: &HeaderMap) -> Result<(), ApiFailure> {
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let text = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|v| v.to_str().ok());
    let authority = text.split_once("://").map(|(_, authority)| authority);
    let is_own = authority.is_some() && authority == host;
    let is_external = web.external_origin.as_deref() == Some(text);
    // A pattern that matches every origin allows pages to read responses, but not to change state.
    let is_allowed = web
        .cors_origin
        .as_ref()
        .is_some_and(|pattern| pattern.as_str() != "^(?:.*)$" && pattern.is_match(text));
    if is_own || is_external || is_allowed {
        return Ok(());
    }
    let message = format!("origin is not allowed to change state: {text:?}");
    Err(ApiFailure::new(FailureCause::Forbidden, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(cors: Option<&str>) -> WebSettings {
        WebSettings {
            route_prefix: String::new(),
            external_origin: Some("https://metrics.example.org".into()),
            cors_origin: cors.map(|p| regex::Regex::new(&format!("^(?:{p})$")).unwrap()),
            ..WebSettings::default()
        }
    }

    #[test]
    fn check_same_lets_only_own_pages_change_state() {
        let cases: [(Option<&'static str>, Option<&str>, bool); 9] = [
            (None, None, true),
            (Some("http://localhost:9090"), None, true),
            (Some("https://metrics.example.org"), None, true),
            (Some("http://evil.example"), None, false),
            (Some("null"), None, false),
            (Some("localhost:9090"), None, false),
            (Some("http://a.example"), Some(".*"), false),
            (Some("http://a.example"), Some("http://a[.]example"), true),
            (Some("http://b.example"), Some("http://a[.]example"), false),
        ];
        for (origin, cors, want) in cases {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("localhost:9090"));
            if let Some(origin) = origin {
                headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            }
            let got = check_same(&web(cors), &headers).is_ok();
            assert_eq!(got, want, "{origin:?} {cors:?}");
        }
    }

    #[test]
    fn allow_names_the_origin_only_where_the_pattern_matches() {
        let cases = [
            (None, Some("http://a.example"), None),
            (Some(".*"), Some("http://a.example"), Some("*")),
            (
                Some("http://a[.]example"),
                Some("http://a.example"),
                Some("http://a.example"),
            ),
            (
                Some("http://a[.]example"),
                Some("http://a.example.org"),
                None,
            ),
            (Some(".*"), None, None),
        ];
        for (cors, origin, want) in cases {
            let mut headers = HeaderMap::new();
            let origin = origin.map(HeaderValue::from_static);
            allow(&web(cors), origin.as_ref(), &mut headers);
            let got = headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN);
            assert_eq!(got.map(|v| v.to_str().unwrap()), want, "{cors:?}");
            assert_eq!(headers.get(header::VARY).unwrap(), "Origin");
        }
    }
}
