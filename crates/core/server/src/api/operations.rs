//! Endpoints for operators and orchestrators: health, readiness, metrics, reload, quit,
//! drain and profiles. Responses are plain text, with upstream's messages where it has some.

use super::call::not_ready;
use super::form::RequestForm;
use super::origin;
use super::status;
use super::times::parse_duration_nanos;
use crate::app::ServerApp;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::http::produce::{ResponseEncoding, respond};
use crate::parts::ProfileSource;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_model::env::JobKind;
use firn_model::error::{Error, ErrorKind};
use firn_wire::exposition::{CONTENT_TYPE, FAMILIES_CONTENT_TYPE};
use firn_wire::federation::FederationFormat;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

const PLAIN: &str = "text/plain; charset=utf-8";

/// Maximum duration of a CPU profile in seconds, because its samples are kept in memory.
const PROFILE_SECONDS_MAX: u64 = 300;

/// Response to a request to drain the node.
const DRAINING: &str =
    "Draining: this node hands off its partitions and takes over none until POST /-/undrain.\n";

/// Response to a request that ends a drain.
const UNDRAINED: &str = "Not draining: this node takes over partitions again.\n";

fn text(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(PLAIN));
    response
}

/// Reports that the process is running, independent of the store.
pub(crate) async fn healthy(_app: ServerApp, _request: Request) -> Response {
    text(StatusCode::OK, "Firn is Healthy.\n")
}

/// Reports readiness: queries see all acked samples, and the disk accepts writes. Answers 503 while
/// the store is not open or its disk fails. A full disk is temporary and does not make the server
/// unready.
pub(crate) async fn ready(app: ServerApp, _request: Request) -> Response {
    match app.backend() {
        Ok(backend) => match (backend.write_fault)() {
            None => text(StatusCode::OK, "Firn is Ready.\n"),
            Some(cause) => {
                let message = format!("Firn does not accept writes: {cause}\n");
                text(StatusCode::SERVICE_UNAVAILABLE, &message)
            }
        },
        Err(state) => not_ready(state),
    }
}

/// Returns Firn's own metrics in the negotiated format. Available while the server starts.
pub(crate) async fn metrics(app: ServerApp, request: Request) -> Response {
    let encoding = ResponseEncoding::from_request(&request);
    let accepted = request.headers().get(header::ACCEPT);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    let as_families = FederationFormat::negotiate(accepted.unwrap_or_default()).is_protobuf();
    let content_type = if as_families {
        FAMILIES_CONTENT_TYPE
    } else {
        CONTENT_TYPE
    };
    match app.exposition(as_families).await {
        Ok(body) => respond(Bytes::from(body), content_type, encoding),
        Err(e) => ApiFailure::execution(e).into_plain(),
    }
}

/// Returns the build information as JSON, like upstream's `/version`.
pub(crate) async fn version(app: ServerApp, request: Request) -> Response {
    match status::version(&app) {
        Ok(body) => respond(
            body,
            "application/json",
            ResponseEncoding::from_request(&request),
        ),
        Err(e) => ApiFailure::internal(e.to_string()).into_plain(),
    }
}

/// Rejects GET on an endpoint that changes state, with upstream's message.
pub(crate) async fn only_post(_app: ServerApp, _request: Request) -> Response {
    text(
        StatusCode::METHOD_NOT_ALLOWED,
        "Only POST or PUT requests allowed",
    )
}

/// Reloads the configuration file on a background thread. Answers 500 with the reason if that
/// fails.
pub(crate) async fn reload(app: ServerApp, request: Request) -> Response {
    let reload = match lifecycle(&app, request.headers()) {
        Ok(lifecycle) => lifecycle.reload.clone(),
        Err(failure) => return failure.into_plain(),
    };
    let outcome = background(&app, move || {
        reload().map_err(|why| Error::new(ErrorKind::Internal, why))
    });
    match outcome.await {
        Ok(()) => text(StatusCode::OK, ""),
        Err(e) => ApiFailure::internal(format!("failed to reload config: {e}")).into_plain(),
    }
}

/// Requests the termination of the process. Repeated requests are answered differently, as in
/// upstream.
pub(crate) async fn quit(app: ServerApp, request: Request) -> Response {
    match lifecycle(&app, request.headers()) {
        Ok(lifecycle) if (lifecycle.quit)() => {
            text(StatusCode::OK, "Requesting termination... Goodbye!")
        }
        Ok(_) => text(StatusCode::OK, "Termination already in progress."),
        Err(failure) => failure.into_plain(),
    }
}

/// Starts to hand off the partitions of this node. Available while the server starts.
pub(crate) async fn drain(app: ServerApp, request: Request) -> Response {
    set_draining(&app, request.headers(), true).await
}

/// Lets this node lead partitions again. Available while the server starts.
pub(crate) async fn undrain(app: ServerApp, request: Request) -> Response {
    set_draining(&app, request.headers(), false).await
}

async fn set_draining(app: &ServerApp, headers: &HeaderMap, is_draining: bool) -> Response {
    if let Err(failure) = lifecycle(app, headers) {
        return failure.into_plain();
    }
    let Some(cluster) = &app.parts.cluster else {
        let message = "this server is not a node of a cluster: firn.cluster is not set";
        let cause = FailureCause::Execution(ErrorKind::NotFound);
        return ApiFailure::new(cause, message).into_plain();
    };
    let drain = cluster.drain.clone();
    match background(app, move || drain(is_draining)).await {
        Ok(()) if is_draining => text(StatusCode::OK, DRAINING),
        Ok(()) => text(StatusCode::OK, UNDRAINED),
        Err(e) => ApiFailure::execution(e).into_plain(),
    }
}

fn lifecycle<'a>(
    app: &'a ServerApp,
    headers: &HeaderMap,
) -> Result<&'a crate::parts::Lifecycle, ApiFailure> {
    let Some(lifecycle) = &app.parts.lifecycle else {
        return Err(ApiFailure::new(
            FailureCause::Forbidden,
            "Lifecycle API is not enabled.",
        ));
    };
    origin::check_same(&app.parts.web, headers)?;
    Ok(lifecycle)
}

/// HTML page that lists the profiles.
const PROFILES_PAGE: &str = "\
<!DOCTYPE html>
<html lang=\"en\">
<head><meta charset=\"utf-8\"><title>/debug/pprof/</title></head>
<body>
<h1>/debug/pprof/</h1>
<p>Profiles for <code>go tool pprof URL</code> and other readers of its format:</p>
<ul>
<li><a href=\"heap\">heap</a>: what is allocated now, sampled about once a MiB</li>
<li><a href=\"allocs\">allocs</a>: the same; what was freed is not known</li>
<li><a href=\"goroutine\">goroutine</a>, <a href=\"threadcreate\">threadcreate</a>: the threads by
their names</li>
<li><a href=\"block\">block</a>, <a href=\"mutex\">mutex</a>: empty; waiting is not measured</li>
<li><a href=\"cmdline\">cmdline</a>: the command line</li>
<li><a href=\"profile?seconds=30\">profile</a>: where CPU time goes during the next
<code>seconds</code> (30 if not given, 300 at most)</li>
</ul>
</body>
</html>
";

/// Returns the page that lists the profiles, or 404 without a profiler.
pub(crate) async fn profiles(app: ServerApp, _request: Request) -> Response {
    if app.parts.profiler.is_none() {
        return no_profiler();
    }
    let mut response = text(StatusCode::OK, PROFILES_PAGE);
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

/// Redirects to the folder with a trailing slash, because links on the page are relative to it.
/// Includes the route prefix.
pub(crate) async fn profiles_folder(app: ServerApp, _request: Request) -> Response {
    let mut response = text(StatusCode::MOVED_PERMANENTLY, "");
    let folder = format!("{}/debug/pprof/", app.parts.web.route_prefix);
    if let Ok(folder) = HeaderValue::from_str(&folder) {
        response.headers_mut().insert(header::LOCATION, folder);
    }
    response
}

/// Creates a profile with `make` on a background thread and returns it under the name `name`.
async fn profile_of(
    app: &ServerApp,
    name: &str,
    make: impl FnOnce(&dyn ProfileSource) -> Result<Vec<u8>, Error> + Send + 'static,
) -> Response {
    let Some(profiler) = app.parts.profiler.clone() else {
        return no_profiler();
    };
    profile_response(name, background(app, move || make(&*profiler)).await)
}

/// Returns a profile of the currently allocated memory, sampled by the allocator.
pub(crate) async fn heap_profile(app: ServerApp, _request: Request) -> Response {
    profile_of(&app, "heap", |profiler| profiler.heap()).await
}

/// Returns the same profile under the name that collectors expect for all allocations. The
/// allocator does not record freed memory.
pub(crate) async fn allocs_profile(app: ServerApp, _request: Request) -> Response {
    profile_of(&app, "allocs", |profiler| profiler.heap()).await
}

/// Returns a profile of the threads by name in place of goroutines.
pub(crate) async fn goroutine_profile(app: ServerApp, _request: Request) -> Response {
    profile_of(&app, "goroutine", |p| p.threads("goroutine")).await
}

/// Returns a profile of the threads by name, under Go's name for created threads.
pub(crate) async fn threadcreate_profile(app: ServerApp, _request: Request) -> Response {
    profile_of(&app, "threadcreate", |p| p.threads("threadcreate")).await
}

/// Sample types of block and mutex profiles. Blocking is not measured; with Go's defaults these
/// profiles are empty as well.
const WAITING: [(&str, &str); 2] = [("contentions", "count"), ("delay", "nanoseconds")];

/// Returns an empty profile of blocking, so that collectors do not fail.
pub(crate) async fn block_profile(app: ServerApp, _request: Request) -> Response {
    profile_of(&app, "block", |profiler| profiler.nothing(&WAITING)).await
}

/// Returns an empty profile of mutex contention, so that collectors do not fail.
pub(crate) async fn mutex_profile(app: ServerApp, _request: Request) -> Response {
    profile_of(&app, "mutex", |profiler| profiler.nothing(&WAITING)).await
}

/// Returns the arguments of the command line, separated by zero bytes, as pprof expects.
pub(crate) async fn command_line(app: ServerApp, _request: Request) -> Response {
    match &app.parts.profiler {
        Some(profiler) => text(StatusCode::OK, &profiler.command_line().join("\0")),
        None => no_profiler(),
    }
}

/// Reports that symbols cannot be queried, because profiles already contain the names of functions.
pub(crate) async fn symbols(app: ServerApp, _request: Request) -> Response {
    match app.parts.profiler {
        Some(_) => text(StatusCode::OK, "num_symbols: 0\n"),
        None => no_profiler(),
    }
}

/// Answers 404: there is no Go execution trace. The message refers to alternatives.
pub(crate) async fn no_trace(_app: ServerApp, _request: Request) -> Response {
    let message = "there is no Go runtime to trace: see profile, or tracing in the config";
    ApiFailure::new(FailureCause::Execution(ErrorKind::NotFound), message).into_plain()
}

/// Takes a CPU profile for the requested number of seconds, 30 by default. Only one can run at a
/// time; a second request is answered with 503.
pub(crate) async fn cpu_profile(app: ServerApp, request: Request) -> Response {
    let Some(profiler) = app.parts.profiler.clone() else {
        return no_profiler();
    };
    let form = match RequestForm::parse("", request.uri().query().unwrap_or_default()) {
        Ok(form) => form,
        Err(failure) => return failure.into_plain(),
    };
    let seconds = match form.get("seconds") {
        "" => 30,
        text => match parse_duration_nanos(text) {
            Ok(nanos) => (nanos / 1_000_000_000).clamp(1, PROFILE_SECONDS_MAX as i64) as u64,
            Err(e) => return ApiFailure::parameter("seconds", e).into_plain(),
        },
    };
    let Some(_only) = CpuProfileGuard::start(&app) else {
        let message = "a CPU profile is already running";
        return ApiFailure::new(FailureCause::Request(ErrorKind::Unavailable), message)
            .into_plain();
    };
    let finish = match background(&app, move || profiler.start_cpu()).await {
        Ok(finish) => finish,
        Err(e) => return ApiFailure::execution(e).into_plain(),
    };
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    profile_response("profile", background(&app, finish).await)
}

/// Guard of the only running CPU profile. Allows the next one when it is dropped.
struct CpuProfileGuard(ServerApp);

impl CpuProfileGuard {
    fn start(app: &ServerApp) -> Option<Self> {
        let was_taken = app.profiling.swap(true, Ordering::Relaxed);
        (!was_taken).then(|| Self(app.clone()))
    }
}

impl Drop for CpuProfileGuard {
    fn drop(&mut self) {
        self.0.profiling.store(false, Ordering::Relaxed);
    }
}

fn no_profiler() -> Response {
    let message = "this build has no profiler";
    ApiFailure::new(FailureCause::Execution(ErrorKind::NotFound), message).into_plain()
}

fn profile_response(name: &str, outcome: Result<Vec<u8>, Error>) -> Response {
    let bytes = match outcome {
        Ok(bytes) => bytes,
        Err(e) => return ApiFailure::execution(e).into_plain(),
    };
    // The profile is already compressed and is sent unchanged.
    let mut response = Response::new(Body::from(bytes));
    let octets = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, octets);
    let disposition = format!("attachment; filename=\"{name}\"");
    if let Ok(value) = HeaderValue::from_str(&disposition) {
        response
            .headers_mut()
            .insert(header::CONTENT_DISPOSITION, value);
    }
    response
}

/// Runs `job`, which may block, on the background threads and waits for its result. A panic becomes
/// an error.
async fn background<T: Send + 'static>(
    app: &ServerApp,
    job: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = oneshot::channel();
    app.parts.env.compute.spawn(
        JobKind::Background,
        Box::new(move || {
            // Fails if the client has disconnected.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(job)));
        }),
    );
    match receiver.await {
        Ok(Ok(outcome)) => outcome,
        _ => {
            app.metrics.panics.inc();
            Err(Error::new(
                ErrorKind::Internal,
                "the request failed: see the log",
            ))
        }
    }
}
