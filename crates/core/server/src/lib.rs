//! The HTTP API of Firn: routes, JSON documents, status codes, admission control and the embedded
//! web UI.
//!
//! ```text
//! json        values in Prometheus's JSON format
//! admission   limits, memory budgets, the query queue           uses json
//! http        connections, request bodies, responses, errors    uses json, admission
//! access      authentication and authorization                  uses http
//! tls         TLS handshakes of the listener                    uses http
//! app, parts  state shared by all requests                      use json, admission, http, access
//! query_log   the query log                                     uses parts
//! watched     a store that counts the reads of a query          uses admission
//! asking      queries of one rule or console page               uses query_log, watched
//! rules       queries of rules                 uses app, admission, query_log, asking
//! files       files of the operator, by the paths of requests
//! api         handlers of the endpoints                         uses all of the above
//! routes      mapping of paths to endpoints                     uses api
//! reflector   HTTP server of `firn mirror`                      uses http, admission
//!
//! socket -> http::listener -> routes -> api::call -> handler -> threads -> http::produce -> socket
//! ```
//!
//! Writes flow from [`axum`]'s body to [`firn_ingest::Pipeline`], look-ups and queries to
//! [`firn_model::store::Select`] and [`engine::Engine`].
//!
//! Invariants: memory, threads and time stay within [`ServerLimits`] for any client input; no lock
//! is held across an await; errors are mapped to a status in one place; no blocking work runs on
//! the async runtime, with one exception. A typical remote-write request is decoded and appended on
//! the async thread that received it, including the creation of new series under the lock of the
//! index; see [`firn_ingest::Pipeline::is_quick`] for the benefit.
//!
//! PromQL semantics and storage are not part of this crate: they belong to `promql` and to the
//! store behind [`parts::Backend`]. The binary builds [`parts::AppParts`] and calls [`serve`].

pub mod access;
mod admission;
mod api;
mod app;
mod asking;
pub mod engine;
mod federated;
mod files;
mod http;
mod json;
mod metrics;
mod notices;
pub mod parts;
pub mod query_log;
mod query_stats;
pub mod reflector;
pub mod results_cache;
mod routes;
pub mod rules;
mod tenancy;
pub mod tls;
mod traced;
mod watched;

use http::connection::ConnectionContext;

pub use admission::active::ActiveQueries;
pub use admission::limits::ServerLimits;
pub use app::{ServerApp, ServerAppState};
pub use http::accept::{ConnectionSource, HttpProtocol};
pub use routes::{documentation, router};

/// Serves `app` to the connections of `source` until `shutdown` resolves. Then waits for current
/// requests up to the grace period in the limits.
pub async fn serve(
    source: impl ConnectionSource,
    app: ServerApp,
    shutdown: impl Future<Output = ()>,
) {
    let site = ConnectionContext {
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
