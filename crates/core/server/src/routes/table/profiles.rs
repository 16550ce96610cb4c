//! Routes of profiles, at the paths of Go's `net/http/pprof`.

use super::cells::{GET, HTML, OCTETS, TEXT};
use crate::access::ResponseVisibility;
use crate::api::operations;
use crate::metrics::ServerEndpoint;
use crate::routes::route::ParamKind::Duration;
use crate::routes::route::{ApiRoute, mount, param, plain};
use firn_model::access::AccessScope;

pub(super) const PROFILES: &[ApiRoute] = &[
    ApiRoute::new(
        "/debug/pprof",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::profiles_folder),
        "Redirects to the list of profiles.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/debug/pprof/",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::profiles),
        "Lists the available profiles.",
    )
    .answers(HTML),
    ApiRoute::new(
        "/debug/pprof/heap",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::heap_profile),
        "Heap profile: live allocations, in pprof format.",
    )
    .answers(OCTETS),
    ApiRoute::new(
        "/debug/pprof/allocs",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::allocs_profile),
        "The same profile as `heap`; freed allocations are not recorded.",
    )
    .answers(OCTETS),
    ApiRoute::new(
        "/debug/pprof/block",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::block_profile),
        "Empty profile: blocking is not measured.",
    )
    .answers(OCTETS),
    ApiRoute::new(
        "/debug/pprof/cmdline",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::command_line),
        "Command line of the process, with arguments separated by NUL bytes.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/debug/pprof/goroutine",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::goroutine_profile),
        "Threads by name, in pprof format.",
    )
    .answers(OCTETS),
    ApiRoute::new(
        "/debug/pprof/profile",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::cpu_profile),
        "CPU profile, in pprof format.",
    )
    .with_params(&[param(
        "seconds",
        Duration,
        "Duration of the profile, at most 300s. Default: 30s.",
    )])
    .answers(OCTETS),
    ApiRoute::new(
        "/debug/pprof/mutex",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::mutex_profile),
        "Empty profile: blocking is not measured.",
    )
    .answers(OCTETS),
    ApiRoute::new(
        "/debug/pprof/symbol",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::symbols),
        "States that profiles contain their symbols.",
    )
    .answers(TEXT),
    ApiRoute::new(
        "/debug/pprof/threadcreate",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::threadcreate_profile),
        "Threads by name, in pprof format.",
    )
    .answers(OCTETS),
    ApiRoute::new(
        "/debug/pprof/trace",
        mount(
            GET,
            ServerEndpoint::Operations,
            AccessScope::Admin,
            ResponseVisibility::Whole,
        ),
        |m| plain(m, operations::no_trace),
        "Returns an error: there is no Go runtime to trace.",
    )
    .answers(TEXT),
];
