//! The HTTP API: routes, JSON, status codes, admission, the embedded page.
//!
//! ```text
//! json        values as Prometheus writes them
//! admission   limits, budgets, the queue of queries             uses json
//! http        connections, request bodies, answers, errors      uses json, admission
//! access      who may do what: credentials and grants           uses http
//! tls         handshakes of the listener                        uses http
//! app, parts  the state that all requests share                 use json, admission, http, access
//! query_log   the log of queries                                uses parts
//! asking      queries of a whole, a rule or a page              uses query_log
//! rules       queries of rules                  uses app, admission, query_log, asking
//! files       files of the operator's, by the paths of requests
//! api         the endpoints                                     uses all above
//! routes      which endpoint answers which path                 uses api
//! reflector   the HTTP of `firn mirror`, a server of its own    uses http, admission
//!
//! socket -> http::listener -> routes -> api::call -> endpoint -> threads -> http::produce -> socket
//! ```
//!
//! Writes go from [`axum`]'s body to [`firn_ingest::Pipeline`], look-ups and queries to
//! [`firn_model::store::Select`] and [`engine::Engine`].
//!
//! Invariants: whatever a client sends, memory, threads and time stay within [`Limits`]; no lock is
//! held across an await; an error becomes a status in one place; no blocking work runs on the async
//! runtime, with one exception. An ordinary remote-write request is decoded and appended where it
//! was received, the creation of its new series under the lock of the index included:
//! [`firn_ingest::Pipeline::is_quick`] says what that saves.
//!
//! What PromQL means and how samples are kept is left to `promql` and to the store behind
//! [`parts::Backend`]; the binary builds [`parts::AppParts`] and calls [`serve`].

pub mod access;
mod admission;
mod api;
mod app;
mod asking;
pub mod engine;
mod files;
mod http;
mod json;
mod metrics;
mod notices;
pub mod parts;
pub mod query_log;
mod query_stats;
pub mod reflector;
mod routes;
pub mod rules;
mod timed;
pub mod tls;
mod traced;

use http::connection::Site;

pub use admission::active::ActiveQueries;
pub use admission::limits::Limits;
pub use app::{App, State};
pub use http::accept::{Accept, Protocol};
pub use routes::{documentation, router};

/// Serves `app` to the connections of `source` until `shutdown` resolves; then lets requests under
/// way end for as long as the limits say.
pub async fn serve(source: impl Accept, app: App, shutdown: impl Future<Output = ()>) {
    let site = Site {
        router: router(app.clone()),
        limits: app.limits().clone(),
        heads: app.budgets.heads.clone(),
        metrics: app.metrics.clone(),
    };
    let stopped = async {
        shutdown.await;
        app.stop();
    };
    http::listener::serve(source, site, stopped).await;
}
