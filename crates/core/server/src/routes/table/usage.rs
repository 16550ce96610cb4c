//! Routes of the usage and limits of tenants, at Mimir's paths.

use crate::api::usage;
use crate::metrics::ServerEndpoint;
use crate::routes::route::{ApiRoute, plain, state};

pub(super) const USAGE: &[ApiRoute] = &[
    ApiRoute::new(
        "/user_stats",
        state(ServerEndpoint::Status),
        |m| plain(m, usage::user_stats),
        "Returns the series of the tenant and, since the start, its samples, bytes and queries, \
         divided by the label of `cost_attribution_labels`.",
    )
    .by_tenant()
    .require_store(),
    ApiRoute::new(
        "/user_limits",
        state(ServerEndpoint::Status),
        |m| plain(m, usage::user_limits),
        "Returns the limits of the tenant, with the keys of `firn.overrides`. 0 means no limit.",
    )
    .by_tenant(),
];
