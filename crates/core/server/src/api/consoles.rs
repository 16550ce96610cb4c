//! `/consoles`: pages rendered from templates of the operator, like Prometheus's console templates.
//!
//! ```text
//! path -> template and libraries (files) -> query queue -> queries, execution -> page
//! ```
//!
//! Invariant: a page counts as one query. It has one place in the queue, one deadline, and one
//! memory budget for all of its queries, and sees only the series that its credentials allow. Files
//! are read before it enters the queue, up to a size limit.

use super::call::{ApiCall, not_ready};
use crate::admission::run::QueryRun;
use crate::app::ServerApp;
use crate::asking::QuerySession;
use crate::files::{self, media, reason};
use crate::http::blocking::run_blocking;
use crate::http::failure::{ApiFailure, FailureCause};
use crate::http::produce::RenderedText;
use crate::metrics::ServerEndpoint;
use crate::parts::Backend;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use firn_gotemplate::{
    ConsoleRequest, TemplateError, TemplateLimits, console_name, expand_console,
};
use firn_model::error::ErrorKind;
use firn_rules::rule::query_samples;
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::time::Instant;

/// Path prefix of console pages.
const PREFIX: &str = "/consoles";

/// Maximum size of a template and its libraries together, in bytes. Prometheus's own take a tenth
/// of it.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Ratio between the size of parsed trees and their text. A short action of five bytes takes
/// several hundred.
const TREE_FACTOR: usize = 64;

/// Template texts of a page: the page itself and all libraries.
struct ConsoleTemplates {
    page: String,
    /// Libraries as pairs of file name and text, sorted by name.
    libraries: Vec<(String, String)>,
}

impl ConsoleTemplates {
    fn bytes(&self) -> usize {
        let libraries = self.libraries.iter().map(|(_, text)| text.len());
        self.page.len() + libraries.sum::<usize>()
    }
}

/// Renders the page at the path of the request. Errors are answered in plain text, as in upstream.
pub(crate) async fn page(app: ServerApp, request: Request) -> Response {
    let backend = match app.backend() {
        Ok(backend) => backend,
        Err(state) => return not_ready(state),
    };
    if request.uri().path() == PREFIX {
        return to_folder();
    }
    match answer(&app, backend, request).await {
        Ok(response) => response,
        Err(failure) => failure.into_plain(),
    }
}

/// Redirects to the path with a trailing slash, relative to the route prefix.
fn to_folder() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    let target = HeaderValue::from_static("consoles/");
    response.headers_mut().insert(header::LOCATION, target);
    response
}

async fn answer(
    app: &ServerApp,
    backend: Arc<Backend>,
    request: Request,
) -> Result<Response, ApiFailure> {
    let call = ApiCall::read(app, backend, ServerEndpoint::Consoles, request).await?;
    let path = call.path.strip_prefix(PREFIX).unwrap_or(&call.path);
    let path = super::form::unescape_path(path)?;
    let (named, web) = (path.clone(), app.parts.web.clone());
    let texts = run_blocking(move || read(&web.console_templates, &web.console_libraries, &named));
    let texts = texts.await??;
    if let Some(error) = call.form.first_error() {
        return Err(ApiFailure::bad_data(error));
    }
    let job = job(&call, path.clone(), texts);
    let deadline = Instant::now() + app.query_timeout(&call.tenant);
    let asked = [format!("{PREFIX}{path}")];
    let text = call.compute_asking(&asked, deadline, job).await?;
    let media = media::by_start(text.start());
    let mut response = call.respond(text, "text/html");
    let media = HeaderValue::from_static(media);
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(response)
}

/// Reads the template at `path` and all libraries. Fails if the template does not exist or the
/// texts are too long.
fn read(templates: &Path, libraries: &Path, path: &str) -> Result<ConsoleTemplates, ApiFailure> {
    let not_found = |e: files::FileOpenError| {
        let cause = FailureCause::Request(ErrorKind::NotFound);
        ApiFailure::new(cause, e.to_string())
    };
    let found = files::find(templates, path).map_err(not_found)?;
    let page = found.text(TEXT_BYTES_MAX).map_err(ApiFailure::internal)?;
    let mut left = TEXT_BYTES_MAX.saturating_sub(page.len() as u64);
    let mut texts = Vec::new();
    for name in library_names(libraries) {
        let found = files::find(libraries, &format!("/{name}")).map_err(|e| e.to_string());
        let text = found.and_then(|found| found.text(left));
        let text = text.map_err(|message| {
            let name = console_name(path);
            ApiFailure::internal(TemplateError::Library { name, message }.to_string())
        })?;
        left = left.saturating_sub(text.len() as u64);
        texts.push((name, text));
    }
    Ok(ConsoleTemplates {
        page,
        libraries: texts,
    })
}

/// Returns the names of the library files, sorted; empty if the folder does not exist.
fn library_names(folder: &Path) -> Vec<String> {
    let names = |entries: std::fs::ReadDir| {
        let names = entries
            .filter_map(Result::ok)
            .map(|entry| entry.file_name());
        names.filter_map(|name| name.into_string().ok())
    };
    let mut names: Vec<String> = match std::fs::read_dir(folder) {
        Ok(entries) => names(entries)
            .filter(|name| name.ends_with(".lib"))
            .collect(),
        Err(e) => {
            if e.kind() != io::ErrorKind::NotFound {
                tracing::warn!(
                    folder = %folder.display(),
                    error = reason(&e),
                    "failed to read the console libraries"
                );
            }
            Vec::new()
        }
    };
    names.sort_unstable();
    names
}

/// Returns the job that renders the page in the query queue.
fn job(
    call: &ApiCall,
    path: String,
    texts: ConsoleTemplates,
) -> impl FnOnce(&Arc<QueryRun>) -> Result<RenderedText, ApiFailure> + Send + 'static {
    let (app, backend, tenant) = (call.app.clone(), call.backend.clone(), call.tenant.clone());
    let (origin, trace) = (call.origin(), call.trace());
    let params: Vec<_> = call.form.pairs().cloned().collect();
    let asked_at = app.parts.env.clock.monotonic();
    move |run| {
        let limits = TemplateLimits {
            cancel: run.cancel().clone(),
            ..TemplateLimits::default()
        };
        let mut memory = run.budget().create_reservation();
        let needed = TREE_FACTOR * texts.bytes() + limits.output_bytes_max;
        memory.grow(needed).map_err(ApiFailure::execution)?;
        let clock = &app.parts.env.clock;
        let log = &app.parts.query_log;
        let mut asking = QuerySession {
            log: log.is_on().then(|| (log.clone(), origin)),
            // The store creates the spans of this request.
            span: None,
            trace,
            queue: clock.monotonic().saturating_sub(asked_at),
            engine: app.parts.engine.clone(),
            store: backend.store.clone(),
            local: backend.local.clone(),
            env: app.parts.env.clone(),
            tenant: &tenant,
            options: app.parts.query.options(&tenant, log.is_on()),
            run,
            held: Vec::new(),
        };
        let console = ConsoleRequest {
            path: &path,
            text: &texts.page,
            libraries: &texts.libraries,
            params: &params,
            external_labels: &(app.parts.external_labels)(),
            external_url: &backend.outside.url,
            path_prefix: &backend.outside.path,
            time: clock.now_ms(),
        };
        let mut query = |text: &str, at| query_samples(&mut asking, text, at);
        let page = expand_console(&console, &mut query, &limits);
        let page = page.map_err(|e| ApiFailure::internal(e.to_string()))?;
        memory.shrink_to(page.capacity());
        Ok(RenderedText::new(page, memory))
    }
}
