//! The web page: one document for all of its paths, and its files, served with a strict content
//! security policy. The operator can set the title and add a link.
//!
//! The document and the files contain no data. If tokens are configured, both are served without
//! credentials, and the page prompts for a token.

mod files;

use crate::app::ServerApp;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::parts::{AppParts, WebSettings};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use files::PageContent;
use firn_model::error::ErrorKind;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::Path;
use tokio::task::spawn_blocking;

/// Content security policy: scripts, workers, styles and requests only from this server, no inline
/// code and no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; worker-src 'self'; \
                      style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// Title in the file, which the configured one replaces. The scripts read the name from it.
const TITLE: &str = "<title>Firn</title>";

/// Names of files in the folder of hashed names, whose content never changes.
const HASHED: &str = "assets/";

/// Browsers revalidate each time and usually get an empty 304, so an upgrade is visible
/// immediately.
const REVALIDATE: &str = "no-cache";

const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// Returns the document of the page with the configured title, for all of its paths; the script
/// distinguishes them.
pub(crate) async fn index(app: ServerApp, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let text = spawn_blocking(move || document(&app.parts, &path)).await;
    match text.map_err(io::Error::other).and_then(|text| text) {
        Ok(text) => {
            let content = PageContent {
                bytes: text.into_bytes().into(),
                is_gzip: false,
            };
            serve(content, "index.html", REVALIDATE, request.headers())
        }
        Err(error) => ApiFailure::internal(format!("index.html: {error}")).into_plain(),
    }
}

/// Returns the document for a path below the route prefix. Blocks.
fn document(parts: &AppParts, path: &str) -> io::Result<String> {
    let web = &parts.web;
    let text = files::index(web.page_dir.as_deref())?;
    let meta = |name, content: &str| {
        let content = escaped(content);
        format!("<meta name=\"firn:{name}\" content=\"{content}\">\n  ")
    };
    let mode = if parts.is_agent { "agent" } else { "server" };
    let cluster = parts.cluster.as_ref().map_or("", |_| "node");
    let head = meta("mode", mode)
        + &meta("cluster", cluster)
        + &meta("consoles", own_page(web).unwrap_or_default())
        + &format!("<title>{}</title>", escaped(&web.page_title));
    // Links in the document are relative to the root, so that a proxy may add or remove a prefix.
    let depth = path.matches('/').count().saturating_sub(1);
    let text = text.replacen(TITLE, &head, 1);
    Ok(match depth {
        0 => text,
        _ => text.replace("\"./", &format!("\"{}", "../".repeat(depth))),
    })
}

/// Returns the path of the operator's own start page; `None` if there is none.
fn own_page(web: &WebSettings) -> Option<&'static str> {
    const INDEX: &str = "index.html";
    let has = |folder: &Path| folder.join(INDEX).exists();
    match &web.user_assets {
        _ if has(&web.console_templates) => Some("consoles/index.html"),
        Some(folder) if has(folder) => Some("user/"),
        _ => None,
    }
}

/// Escapes `text` for the content of an HTML element or a quoted attribute.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns a file of the page by its path, or 404.
pub(crate) async fn asset(app: ServerApp, request: Request) -> Response {
    let path = request.uri().path().trim_start_matches('/').to_owned();
    if let Some(folder) = app.parts.web.page_dir.clone() {
        return from_folder(&folder, path, request.headers()).await;
    }
    let Some(file) = files::embedded(&path) else {
        return not_found();
    };
    let caching = if path.starts_with(HASHED) {
        IMMUTABLE
    } else {
        REVALIDATE
    };
    match file.content(accepts_gzip(request.headers())) {
        Ok(content) => serve(content, &path, caching, request.headers()),
        Err(error) => ApiFailure::internal(format!("{path}: {error}")).into_plain(),
    }
}

/// Returns a file of the folder that replaces the embedded files. The path has no `..`, because
/// routes match its segments.
async fn from_folder(folder: &Path, path: String, headers: &HeaderMap) -> Response {
    let file = folder.join(&path);
    let Ok(Ok(bytes)) = spawn_blocking(move || std::fs::read(file)).await else {
        return not_found();
    };
    let content = PageContent {
        bytes: bytes.into(),
        is_gzip: false,
    };
    serve(content, &path, REVALIDATE, headers)
}

fn not_found() -> Response {
    let cause = FailureCause::Request(ErrorKind::NotFound);
    ApiFailure::new(cause, "404 page not found").into_plain()
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    accepted.is_some_and(|names| {
        names
            .split(',')
            .any(|name| name.trim().split(';').next() == Some("gzip"))
    })
}

/// Returns the response with `content`, or 304 if the client has it.
fn serve(
    content: PageContent,
    path: &str,
    caching: &'static str,
    request_headers: &HeaderMap,
) -> Response {
    let etag = etag(&content.bytes);
    let known = request_headers.get(header::IF_NONE_MATCH);
    let is_fresh = known.is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut response = Response::new(Body::empty());
    if is_fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else {
        *response.body_mut() = Body::from(content.bytes);
    }
    let headers = response.headers_mut();
    let mut set = |name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, files::media_type(path));
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::CACHE_CONTROL, caching);
    set(header::VARY, "Accept-Encoding");
    if content.is_gzip && !is_fresh {
        set(header::CONTENT_ENCODING, "gzip");
    }
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

fn etag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
