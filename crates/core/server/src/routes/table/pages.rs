//! Routes for browsers: the web UI, and pages and files of the operator.

use super::cells::{GET, HTML, OCTETS, TEXT};
use crate::access::ResponseVisibility;
use crate::api::{consoles, page, user_assets};
use crate::metrics::ServerEndpoint;
use crate::routes::route::{ApiRoute, mount, mount_data, open, plain};
use firn_model::access::AccessScope;

/// Returns a route of the web UI. All of them serve the same document, whose script renders the
/// page for the path.
const fn page_at(path: &'static str, doc: &'static str) -> ApiRoute {
    let mount = open(GET, ServerEndpoint::Page);
    ApiRoute::new(path, mount, |m| plain(m, page::index), doc).answers(HTML)
}

pub(super) const OWN: &[ApiRoute] = &[
    page_at("/", "Start page of the web interface."),
    page_at("/graph", "Query page, at the path used by links in alerts."),
    page_at("/query", "Query page, at Prometheus's path."),
    page_at(
        "/explore/metrics",
        "Metrics with type, unit, help and series.",
    ),
    page_at("/explore/cardinality", "Numbers of series by label."),
    page_at("/explore/usage", "Metrics that no query selects."),
    page_at("/alerts", "Alerting rules and their alerts."),
    page_at("/rules", "Rules."),
    page_at("/rules/test", "Test of a rule over the past."),
    page_at("/targets", "Scrape targets."),
    page_at("/service-discovery", "Discovered targets."),
    page_at("/relabel", "Relabelling of a target, rule by rule."),
    page_at("/discards", "Rejected samples."),
    page_at("/alertmanager-discovery", "Discovered Alertmanagers."),
    page_at("/status", "Version and runtime information."),
    page_at("/agent", "The same page, at the path of Prometheus agents."),
    page_at("/tsdb-status", "Head, log and blocks of the store."),
    page_at("/queries", "Running queries, and the most expensive ones."),
    page_at("/cluster", "Nodes and partitions of the cluster."),
    page_at("/config", "The active configuration."),
    page_at("/flags", "The flags and their values."),
    file_at("/favicon.svg", "Icon.").answers("image/svg+xml"),
    file_at("/LICENSES.txt", "Licenses of the libraries in the scripts."),
    file_at(ASSET, "Scripts and styles of the web interface."),
];

/// Path of the files with hashed names.
const ASSET: &str = "/assets/{name}";

/// Returns a route of a file of the web UI.
const fn file_at(path: &'static str, doc: &'static str) -> ApiRoute {
    let mount = open(GET, ServerEndpoint::Page);
    ApiRoute::new(path, mount, |m| plain(m, page::asset), doc).answers(TEXT)
}

/// Returns whether `path` (without the route prefix) is a page or a file of the web UI. These
/// contain no data.
pub(in crate::routes) fn is_of_page(path: &str) -> bool {
    let is_same = |route: &ApiRoute| match route.path.split_once("{name}") {
        Some((folder, _)) => path
            .strip_prefix(folder)
            .is_some_and(|name| !name.is_empty() && !name.contains('/')),
        None => route.path == path,
    };
    OWN.iter().any(is_same)
}

const fn console_at(path: &'static str, doc: &'static str) -> ApiRoute {
    let mount = mount_data(GET, ServerEndpoint::Consoles);
    ApiRoute::new(path, mount, |m| plain(m, consoles::page), doc).answers(HTML)
}

const fn user_asset_at(path: &'static str, doc: &'static str) -> ApiRoute {
    let mount = mount(
        GET,
        ServerEndpoint::UserAssets,
        AccessScope::Read,
        ResponseVisibility::Nothing,
    );
    ApiRoute::new(path, mount, |m| plain(m, user_assets::file), doc).answers(OCTETS)
}

pub(super) const OF_OPERATOR: &[ApiRoute] = &[
    console_at("/consoles", "Redirects to the folder."),
    console_at("/consoles/", "Returns an error: a folder is not a page."),
    console_at(
        "/consoles/{*path}",
        "Page rendered from a template in `--web.console.templates`. The template defines its \
         parameters.",
    ),
    user_asset_at("/user", "Redirects to the folder."),
    user_asset_at(
        "/user/",
        "Folder `--web.user-assets`: its `index.html`, or a list of its files.",
    ),
    user_asset_at("/user/{*path}", "A file in this folder."),
];
