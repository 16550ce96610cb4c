//! Cells that several sections of the table use: methods, media types and the parameter of
//! selectors.

use crate::routes::route::ParamKind::{Count, Time};
use crate::routes::route::RouteMethod::{Delete, Get, Post, Put};
use crate::routes::route::{ParamKind, RouteMethod, RouteParam, param};

pub(super) const LIMIT: RouteParam = param(
    "limit",
    Count,
    "Maximum number of results. 0 means no limit.",
);

pub(super) const START: RouteParam = param(
    "start",
    Time,
    "Start of the time range. Default: the oldest sample.",
);

pub(super) const END: RouteParam = param(
    "end",
    Time,
    "End of the time range, inclusive. Default: the newest sample.",
);

pub(super) const GET: &[RouteMethod] = &[Get];
pub(super) const GET_POST: &[RouteMethod] = &[Get, Post];
pub(super) const POST: &[RouteMethod] = &[Post];
pub(super) const POST_PUT: &[RouteMethod] = &[Post, Put];
pub(super) const DELETE: &[RouteMethod] = &[Delete];

pub(super) const TEXT: &str = "text/plain";
pub(super) const LINES: &str = "application/x-ndjson";
/// OTLP responses have the encoding of the request; this is the default.
pub(super) const OTLP: &str = "application/x-protobuf";
pub(super) const YAML: &str = "application/yaml";
pub(super) const HTML: &str = "text/html";
pub(super) const OCTETS: &str = "application/octet-stream";

pub(super) const MATCH: RouteParam = param(
    "match[]",
    ParamKind::Texts,
    "Series selector. A series matches if any of the selectors matches.",
);

/// The same parameter for routes that reject a request without selectors.
pub(super) const REQUIRED_MATCH: RouteParam = RouteParam {
    is_required: true,
    ..MATCH
};
