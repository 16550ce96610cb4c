//! Routes of profiles, at the paths of Go's `net/http/pprof`.

use super::{GET, HTML, OCTETS, TEXT, mount, param};
use crate::access::{Reach, Scope};
use crate::api::operations;
use crate::metrics::Endpoint;
use crate::routes::route::Kind::Duration;
use crate::routes::route::{Route, plain};

pub(super) const PROFILES: &[Route] = &[
    Route::new(
        "/debug/pprof",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::profiles_folder),
        "Redirects to the list of profiles.",
    )
    .answers(TEXT),
    Route::new(
        "/debug/pprof/",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::profiles),
        "Lists the available profiles.",
    )
    .answers(HTML),
    Route::new(
        "/debug/pprof/heap",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::heap_profile),
        "Heap profile: live allocations, in pprof format.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/allocs",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::allocs_profile),
        "The same profile as `heap`; freed allocations are not recorded.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/block",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::block_profile),
        "Empty profile: blocking is not measured.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/cmdline",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::command_line),
        "Command line of the process, with arguments separated by NUL bytes.",
    )
    .answers(TEXT),
    Route::new(
        "/debug/pprof/goroutine",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::goroutine_profile),
        "Threads by name, in pprof format.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/profile",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::cpu_profile),
        "CPU profile, in pprof format.",
    )
    .with(&[param(
        "seconds",
        Duration,
        "Duration of the profile, at most 300s. Default: 30s.",
    )])
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/mutex",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::mutex_profile),
        "Empty profile: blocking is not measured.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/symbol",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::symbols),
        "States that profiles contain their symbols.",
    )
    .answers(TEXT),
    Route::new(
        "/debug/pprof/threadcreate",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::threadcreate_profile),
        "Threads by name, in pprof format.",
    )
    .answers(OCTETS),
    Route::new(
        "/debug/pprof/trace",
        mount(GET, Endpoint::Operations, Scope::Admin, Reach::Whole),
        |m| plain(m, operations::no_trace),
        "Returns an error: there is no Go runtime to trace.",
    )
    .answers(TEXT),
];
