//! The first page: files that are part of the binary, under a policy that lets nothing else run.

use crate::app::App;
use crate::http::failure::{Cause, Failure};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_model::error::ErrorKind;
use std::hash::{DefaultHasher, Hash, Hasher};

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

/// The page itself; the paths that lead to it differ only for the script.
pub(crate) async fn index(_app: App, request: Request) -> Response {
    serve(&INDEX, &request)
}

/// A file that the page needs, by the last part of its path.
pub(crate) async fn asset(_app: App, request: Request) -> Response {
    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => serve(asset, &request),
        None => {
            let cause = Cause::Request(ErrorKind::NotFound);
            Failure::new(cause, "404 page not found").into_plain()
        }
    }
}

fn serve(asset: &Asset, request: &Request) -> Response {
    let etag = etag(asset);
    let known = request.headers().get(header::IF_NONE_MATCH);
    let is_fresh = known.is_some_and(|known| known.as_bytes() == etag.as_bytes());
    let mut response = Response::new(if is_fresh {
        Body::empty()
    } else {
        Body::from(asset.text)
    });
    if is_fresh {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_TYPE, asset.content_type),
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

fn etag(asset: &Asset) -> String {
    let mut hasher = DefaultHasher::new();
    asset.text.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}
