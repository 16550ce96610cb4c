//! Endpoints for operators and orchestrators: health, readiness, metrics, reload, quit and
//! profiles. Answers are plain text, with upstream's words where it has some.

use super::call::not_ready;
use super::form::Form;
use super::origin;
use super::status;
use super::times::parse_duration_nanos;
use crate::app::App;
use crate::http::failure::{Cause, Failure};
use crate::http::produce::{Encoding, respond};
use crate::parts::Profiler;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_model::env::Work;
use firn_model::error::{Error, ErrorKind};
use firn_wire::exposition::{CONTENT_TYPE, FAMILIES_CONTENT_TYPE};
use firn_wire::federation::Format;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::oneshot;

const PLAIN: &str = "text/plain; charset=utf-8";

/// The longest CPU profile: its samples are kept in memory.
const PROFILE_SECONDS_MAX: u64 = 300;

fn text(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static(PLAIN));
    response
}

/// The process runs.
pub(crate) async fn healthy(_app: App, _request: Request) -> Response {
    text(StatusCode::OK, "Firn is Healthy.\n")
}

/// A query sees every acked sample, and writes are taken unless the disk has no room.
pub(crate) async fn ready(app: App, _request: Request) -> Response {
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

/// Firn's own metrics; also while it starts.
pub(crate) async fn metrics(app: App, request: Request) -> Response {
    let encoding = Encoding::of_request(&request);
    let accepted = request.headers().get(header::ACCEPT);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    let as_families = Format::negotiate(accepted.unwrap_or_default()).is_protobuf();
    let content_type = match as_families {
        true => FAMILIES_CONTENT_TYPE,
        false => CONTENT_TYPE,
    };
    match app.exposition(as_families).await {
        Ok(body) => respond(Bytes::from(body), content_type, encoding),
        Err(e) => Failure::execution(e).into_plain(),
    }
}

/// What was built, as upstream's `/version`.
pub(crate) async fn version(app: App, request: Request) -> Response {
    match status::version(&app) {
        Ok(body) => respond(body, "application/json", Encoding::of_request(&request)),
        Err(e) => Failure::internal(e.to_string()).into_plain(),
    }
}

/// GET on an endpoint that changes state.
pub(crate) async fn only_post(_app: App, _request: Request) -> Response {
    text(
        StatusCode::METHOD_NOT_ALLOWED,
        "Only POST or PUT requests allowed",
    )
}

/// Takes over the configuration file anew.
pub(crate) async fn reload(app: App, request: Request) -> Response {
    let reload = match lifecycle(&app, request.headers()) {
        Ok(lifecycle) => lifecycle.reload.clone(),
        Err(failure) => return failure.into_plain(),
    };
    let outcome = background(&app, move || {
        reload().map_err(|why| Error::new(ErrorKind::Internal, why))
    });
    match outcome.await {
        Ok(()) => text(StatusCode::OK, ""),
        Err(e) => Failure::internal(format!("failed to reload config: {e}")).into_plain(),
    }
}

/// Asks the process to end.
pub(crate) async fn quit(app: App, request: Request) -> Response {
    match lifecycle(&app, request.headers()) {
        Ok(lifecycle) if (lifecycle.quit)() => {
            text(StatusCode::OK, "Requesting termination... Goodbye!")
        }
        Ok(_) => text(StatusCode::OK, "Termination already in progress."),
        Err(failure) => failure.into_plain(),
    }
}

fn lifecycle<'a>(
    app: &'a App,
    headers: &HeaderMap,
) -> Result<&'a crate::parts::Lifecycle, Failure> {
    let Some(lifecycle) = &app.parts.lifecycle else {
        return Err(Failure::new(
            Cause::Forbidden,
            "Lifecycle API is not enabled.",
        ));
    };
    origin::check_same(&app.parts.web, headers)?;
    Ok(lifecycle)
}

/// The profiles that there are.
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

/// Lists the profiles.
pub(crate) async fn profiles(app: App, _request: Request) -> Response {
    if app.parts.profiler.is_none() {
        return no_profiler();
    }
    let mut response = text(StatusCode::OK, PROFILES_PAGE);
    let html = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, html);
    response
}

/// Links on the list of profiles are relative to its folder.
pub(crate) async fn profiles_folder(app: App, _request: Request) -> Response {
    let mut response = text(StatusCode::MOVED_PERMANENTLY, "");
    let folder = format!("{}/debug/pprof/", app.parts.web.route_prefix);
    if let Ok(folder) = HeaderValue::from_str(&folder) {
        response.headers_mut().insert(header::LOCATION, folder);
    }
    response
}

/// The profile that `name` calls and `make` makes.
async fn profile_of(
    app: &App,
    name: &str,
    make: impl FnOnce(&dyn Profiler) -> Result<Vec<u8>, Error> + Send + 'static,
) -> Response {
    let Some(profiler) = app.parts.profiler.clone() else {
        return no_profiler();
    };
    profile_response(name, background(app, move || make(&*profiler)).await)
}

/// What is allocated now.
pub(crate) async fn heap_profile(app: App, _request: Request) -> Response {
    profile_of(&app, "heap", |profiler| profiler.heap()).await
}

/// What is allocated now, by the name under which collectors ask for memory: of what was freed
/// again the allocator keeps no record.
pub(crate) async fn allocs_profile(app: App, _request: Request) -> Response {
    profile_of(&app, "allocs", |profiler| profiler.heap()).await
}

/// The threads, in place of goroutines.
pub(crate) async fn goroutine_profile(app: App, _request: Request) -> Response {
    profile_of(&app, "goroutine", |p| p.threads("goroutine")).await
}

/// The threads.
pub(crate) async fn threadcreate_profile(app: App, _request: Request) -> Response {
    profile_of(&app, "threadcreate", |p| p.threads("threadcreate")).await
}

/// What collectors ask for about waiting, which is not measured: with Go's defaults that is empty
/// too.
const WAITING: [(&str, &str); 2] = [("contentions", "count"), ("delay", "nanoseconds")];

/// A profile without samples.
pub(crate) async fn block_profile(app: App, _request: Request) -> Response {
    profile_of(&app, "block", |profiler| profiler.nothing(&WAITING)).await
}

/// A profile without samples.
pub(crate) async fn mutex_profile(app: App, _request: Request) -> Response {
    profile_of(&app, "mutex", |profiler| profiler.nothing(&WAITING)).await
}

/// The words of the command line, with zeros between them.
pub(crate) async fn command_line(app: App, _request: Request) -> Response {
    match &app.parts.profiler {
        Some(profiler) => text(StatusCode::OK, &profiler.command_line().join("\0")),
        None => no_profiler(),
    }
}

/// Says that there are no symbols to ask for: profiles have the names in them.
pub(crate) async fn symbols(app: App, _request: Request) -> Response {
    match app.parts.profiler {
        Some(_) => text(StatusCode::OK, "num_symbols: 0\n"),
        None => no_profiler(),
    }
}

/// Says that there is no trace.
pub(crate) async fn no_trace(_app: App, _request: Request) -> Response {
    let message = "there is no Go runtime to trace: see profile, or tracing in the config";
    Failure::new(Cause::Execution(ErrorKind::NotFound), message).into_plain()
}

/// Where time goes for `seconds` from now.
pub(crate) async fn cpu_profile(app: App, request: Request) -> Response {
    let Some(profiler) = app.parts.profiler.clone() else {
        return no_profiler();
    };
    let form = match Form::parse("", request.uri().query().unwrap_or_default()) {
        Ok(form) => form,
        Err(failure) => return failure.into_plain(),
    };
    let seconds = match form.get("seconds") {
        "" => 30,
        text => match parse_duration_nanos(text) {
            Ok(nanos) => (nanos / 1_000_000_000).clamp(1, PROFILE_SECONDS_MAX as i64) as u64,
            Err(e) => return Failure::parameter("seconds", e).into_plain(),
        },
    };
    let Some(_only) = OnlyProfile::start(&app) else {
        let message = "a CPU profile is already running";
        return Failure::new(Cause::Request(ErrorKind::Unavailable), message).into_plain();
    };
    let finish = match background(&app, move || profiler.start_cpu()).await {
        Ok(finish) => finish,
        Err(e) => return Failure::execution(e).into_plain(),
    };
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    profile_response("profile", background(&app, finish).await)
}

/// Holds the right to take a CPU profile.
struct OnlyProfile(App);

impl OnlyProfile {
    fn start(app: &App) -> Option<Self> {
        let was_taken = app.profiling.swap(true, Ordering::Relaxed);
        (!was_taken).then(|| Self(app.clone()))
    }
}

impl Drop for OnlyProfile {
    fn drop(&mut self) {
        self.0.profiling.store(false, Ordering::Relaxed);
    }
}

fn no_profiler() -> Response {
    let message = "this build has no profiler";
    Failure::new(Cause::Execution(ErrorKind::NotFound), message).into_plain()
}

fn profile_response(name: &str, outcome: Result<Vec<u8>, Error>) -> Response {
    let bytes = match outcome {
        Ok(bytes) => bytes,
        Err(e) => return Failure::execution(e).into_plain(),
    };
    // Compressed already: sent as it is, with its length.
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

/// Runs `job`, which may block, on the background threads.
async fn background<T: Send + 'static>(
    app: &App,
    job: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (sender, receiver) = oneshot::channel();
    app.parts.env.compute.spawn(
        Work::Background,
        Box::new(move || {
            // The receiver is gone if the client went away.
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
