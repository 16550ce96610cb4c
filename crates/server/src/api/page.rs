//! The first page: files that are part of the binary, under a policy that lets nothing else run.
//! Its title is the operator's, and so is a link in it.

use crate::app::App;
use crate::http::failure::{Cause, Failure};
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

struct Asset {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
}

const INDEX: Asset = Asset {
    name: "index.html",
    content_type: "text/html; charset=utf-8",
    text: include_str!("../../../../ui/index.html"),
};

const ASSETS: [Asset; 10] = [
    Asset {
        name: "style.css",
        content_type: "text/css; charset=utf-8",
        text: include_str!("../../../../ui/style.css"),
    },
    Asset {
        name: "api.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../ui/api.js"),
    },
    Asset {
        name: "app.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../ui/app.js"),
    },
    Asset {
        name: "completion.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../ui/completion.js"),
    },
    Asset {
        name: "dashboard.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../ui/dashboard.js"),
    },
    Asset {
        name: "format.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../ui/format.js"),
    },
    Asset {
        name: "graph.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../ui/graph.js"),
    },
    Asset {
        name: "panel.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../ui/panel.js"),
    },
    Asset {
        name: "views.js",
        content_type: "text/javascript; charset=utf-8",
        text: include_str!("../../../../ui/views.js"),
    },
    Asset {
        name: "favicon.svg",
        content_type: "image/svg+xml",
        text: include_str!("../../../../ui/favicon.svg"),
    },
];

/// Scripts, styles and requests go to this server only; nothing is framed, and nothing inline runs.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// What the page is called in its file. Its scripts read from there what it is called.
const TITLE: &str = "<title>Firn</title>";

/// Before which link that to the operator's own page stands.
const LAST_LINK: &str = r#"<a href="metrics">"#;

/// The page itself; the paths that lead to it differ only for the script.
pub(crate) async fn index(app: App, request: Request) -> Response {
    let web = app.parts.web.clone();
    let own = spawn_blocking(move || own_page(&web)).await;
    let link = match own.ok().flatten() {
        Some(path) => format!("<a href=\"{path}\">Consoles</a>\n      {LAST_LINK}"),
        None => LAST_LINK.to_owned(),
    };
    let title = format!("<title>{}</title>", escaped(&app.parts.web.page_title));
    let text = INDEX.text.replace(TITLE, &title).replace(LAST_LINK, &link);
    serve(INDEX.content_type, text.into(), &request)
}

/// Where the operator has a page that others start from.
fn own_page(web: &WebSettings) -> Option<&'static str> {
    const INDEX: &str = "index.html";
    let has = |folder: &Path| folder.join(INDEX).exists();
    match &web.user_assets {
        _ if has(&web.console_templates) => Some("consoles/index.html"),
        Some(folder) if has(folder) => Some("user/"),
        _ => None,
    }
}

/// `text` as the text of an element.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

/// A file that the page needs, by the last part of its path.
pub(crate) async fn asset(_app: App, request: Request) -> Response {
    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => serve(asset.content_type, asset.text.into(), &request),
        None => {
            let cause = Cause::Request(ErrorKind::NotFound);
            Failure::new(cause, "404 page not found").into_plain()
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
        // The browser asks each time and gets an empty answer: an upgrade shows at once.
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
