//! Routes for operators and orchestrators: health, readiness, metrics, federation, and requests
//! that change the state of the process.

use super::cells::{GET, MATCH, POST_PUT, TEXT, YAML};
use crate::access::ResponseVisibility;
use crate::api::{federate, operations, usage};
use crate::metrics::ServerEndpoint;
use crate::routes::documents;
use crate::routes::route::{ApiRoute, mount, mount_data, open, plain, state};
use firn_model::access::AccessScope;

pub(super) const OPERATIONS: &[ApiRoute] = &[
    ApiRoute::new(
        "/federate",
        mount_data(GET, ServerEndpoint::Federate),
        |m| plain(m, federate::federate),
        "Returns the newest sample of each matching series, for another server.",
    )
    .with_params(&[MATCH])
    .answers(TEXT),
    ApiRoute::new(
        "/-/healthy",
        open(GET, ServerEndpoint::Operations),
        |m| plain(m, operations::healthy),
        "Liveness check: 200 while the process runs.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/ready",
        open(GET, ServerEndpoint::Operations),
        |m| plain(m, operations::ready),
        "Readiness check: 200 once the server accepts writes and queries see all acknowledged \
         samples.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/reload",
        open(GET, ServerEndpoint::Operations),
        |m| plain(m, operations::only_post),
        "Returns an error: use POST or PUT.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/reload",
        mount(
            POST_PUT,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::reload),
        "Reloads the configuration. Requires `--web.enable-lifecycle`.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/quit",
        open(GET, ServerEndpoint::Operations),
        |m| plain(m, operations::only_post),
        "Returns an error: use POST or PUT.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/quit",
        mount(
            POST_PUT,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::quit),
        "Stops the process. Requires `--web.enable-lifecycle`.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/drain",
        open(GET, ServerEndpoint::Operations),
        |m| plain(m, operations::only_post),
        "Returns an error: use POST or PUT.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/drain",
        mount(
            POST_PUT,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::drain),
        "Hands off the partitions of this node. Requires `--web.enable-lifecycle`.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/undrain",
        open(GET, ServerEndpoint::Operations),
        |m| plain(m, operations::only_post),
        "Returns an error: use POST or PUT.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/-/undrain",
        mount(
            POST_PUT,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::undrain),
        "Lets this node lead partitions again. Requires `--web.enable-lifecycle`.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/metrics",
        state(ServerEndpoint::Metrics),
        |m| plain(m, operations::metrics),
        "Firn's own metrics.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/distributor/all_user_stats",
        state(ServerEndpoint::Status),
        |m| plain(m, usage::all_user_stats),
        "Returns `user_stats` of all tenants, without `attribution`, each with its `userID`.",
    )
    .require_store(),
    ApiRoute::new(
        "/version",
        open(GET, ServerEndpoint::Operations),
        |m| plain(m, operations::version),
        "Returns version and build information.",
    ),
    ApiRoute::new(
        "/openapi.yaml",
        open(GET, ServerEndpoint::Status),
        |m| plain(m, documents::openapi),
        "Returns this API as an OpenAPI document.",
    )
    .answers(YAML),
];
