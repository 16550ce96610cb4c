//! The lines of the table for people with a browser: Firn's page, and what the operator adds.

use super::{GET, HTML, OCTETS, TEXT, look, mount, open};
use crate::access::{Reach, Scope};
use crate::api::{consoles, page, user_assets};
use crate::metrics::Endpoint;
use crate::routes::route::{Route, plain};

/// The page at `path`: what it shows there is its script's work.
const fn page_at(path: &'static str, doc: &'static str) -> Route {
    let mount = open(GET, Endpoint::Page);
    Route::new(path, mount, |m| plain(m, page::index), doc).answers(HTML)
}

pub(super) const OWN: &[Route] = &[
    page_at("/", "The page."),
    page_at("/graph", "The page, where links of alerts lead."),
    page_at("/query", "The page, where links of Prometheus lead."),
    page_at("/alerts", "Its list of alerting rules and their alerts."),
    page_at("/rules", "Its list of rules."),
    page_at("/targets", "Its list of targets."),
    page_at("/service-discovery", "Its list of what was discovered."),
    page_at("/alertmanager-discovery", "Where alerts are sent."),
    page_at("/status", "What runs, and since when."),
    page_at("/agent", "The same, where an agent of Prometheus has it."),
    page_at("/tsdb-status", "The figures of the head."),
    page_at("/config", "The configuration in force."),
    page_at("/flags", "The flags and their values."),
    Route::new(
        "/favicon.svg",
        open(GET, Endpoint::Page),
        |m| plain(m, page::asset),
        "Its icon.",
    )
    .answers("image/svg+xml"),
    Route::new(
        "/assets/{name}",
        open(GET, Endpoint::Page),
        |m| plain(m, page::asset),
        "What it needs.",
    )
    .answers(TEXT),
];

const fn console_at(path: &'static str, doc: &'static str) -> Route {
    let mount = look(GET, Endpoint::Consoles);
    Route::new(path, mount, |m| plain(m, consoles::page), doc).answers(HTML)
}

const fn user_asset_at(path: &'static str, doc: &'static str) -> Route {
    let mount = mount(GET, Endpoint::UserAssets, Scope::Read, Reach::Nothing);
    Route::new(path, mount, |m| plain(m, user_assets::file), doc).answers(OCTETS)
}

pub(super) const OF_OPERATOR: &[Route] = &[
    console_at("/consoles", "Leads to the folder."),
    console_at("/consoles/", "Says that a folder is no page."),
    console_at(
        "/consoles/{*path}",
        "The page that a template of `--web.console.templates` makes; its parameters are the \
         template's.",
    ),
    user_asset_at("/user", "Leads to the folder."),
    user_asset_at(
        "/user/",
        "The folder `--web.user-assets`: its `index.html`, or a list.",
    ),
    user_asset_at("/user/{*path}", "A file in it."),
];
