//! The web UI: files embedded in the binary, served with a strict content security policy. The
//! operator can set the page title and add a link.

use crate::app::ServerApp;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::parts::WebSettings;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_model::error::ErrorKind;
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use tokio::task::spawn_blocking;

struct WebAsset {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const INDEX: WebAsset = WebAsset {
    name: "index.html",
    content_type: "text/html; charset=utf-8",
    text: include_str!("../../../../../ui/index.html"),
};

const ASSETS: [WebAsset; 10] = [
    WebAsset {
        name: "style.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("../../../../../ui/style.css"),
    },
    WebAsset {
        name: "api.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../../ui/api.js"),
    },
    WebAsset {
        name: "app.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../../ui/app.js"),
    },
    WebAsset {
        name: "completion.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../../ui/completion.js"),
    },
    WebAsset {
        name: "dashboard.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../../ui/dashboard.js"),
    },
    WebAsset {
        name: "format.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../../ui/format.js"),
    },
    WebAsset {
        name: "graph.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../../ui/graph.js"),
    },
    WebAsset {
        name: "panel.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../../ui/panel.js"),
    },
    WebAsset {
        name: "views.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../../ui/views.js"),
    },
    WebAsset {
        name: "favicon.svg",
        content_type: "image/svg+xml",
        text: include_str!("../../../../../ui/favicon.svg"),
    },
];

/// Content security policy: scripts, styles and requests only from this server, no inline code and
/// no framing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Title in the file, which the configured one replaces. The scripts read the name from it.
const TITLE: &str = "<title>Firn</title>";

/// Link before which further links are inserted: to the page of the cluster, and to the operator's
/// own page.
const LAST_LINK: &str = r#"<a href="metrics">"#;

/// Returns the main page with the configured title and links. All paths of the UI return the same
/// document; the script distinguishes them.
pub(crate) async fn index(app: ServerApp, request: Request) -> Response {
    let web = app.parts.web.clone();
    let own = spawn_blocking(move || own_page(&web)).await;
    let of_cluster = app.parts.cluster.as_ref().map(|_| ("cluster", "Cluster"));
    let of_operator = own.ok().flatten().map(|path| (path, "Consoles"));
    let added = of_cluster.into_iter().chain(of_operator);
    let mut link: String = added
        .map(|(path, name)| format!("<a href=\"{path}\">{name}</a>\n      "))
        .collect();
    link.push_str(LAST_LINK);
    let title = format!("<title>{}</title>", escaped(&app.parts.web.page_title));
    let text = INDEX.text.replace(TITLE, &title).replace(LAST_LINK, &link);
    serve(INDEX.content_type, text.into(), &request)
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

/// Escapes `text` for the content of an HTML element; not for attributes.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns an embedded file by the last segment of its path, or 404.
pub(crate) async fn asset(_app: ServerApp, request: Request) -> Response {
    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => serve(asset.content_type, asset.text.into(), &request),
        None => {
            let cause = FailureCause::Request(ErrorKind::NotFound);
            ApiFailure::new(cause, "404 page not found").into_plain()
        }
    }
}

fn serve(content_type: &'static str, text: Cow<'static, str>, request: &Request) -> Response {
    let etag = etag(&text);
    let known = request.headers().get(header::IF_NONE_MATCH);
    let is_fresh = known.is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut response = Response::new(if is_fresh {
        Body::empty()
    } else {
        Body::from(text)
    });
    if is_fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // Browsers revalidate each time and usually get an empty 304, so an upgrade is visible
        // immediately.
        (header::CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    response
}

fn etag(text: &str) -> String {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
