//! `/config/v1/rules`: editing of rules through HTTP, like Mimir's ruler. Also available under
//! `/prometheus`, where `mimirtool` and Grafana expect it.
//!
//! Bodies and responses are YAML, or JSON where Mimir uses it. All clients with access may edit,
//! except for pages of other origins; see [`super::origin`].

use super::call::not_ready;
use super::origin;
use crate::app::ServerApp;
use crate::http::blocking::run_blocking;
use crate::http::body;
use crate::http::failure::ApiFailure;
use crate::http::produce::{ResponseEncoding, respond};
use crate::metrics::ServerEndpoint;
use crate::parts::RuleEditor;
use crate::tenancy::require_operator;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, Request};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use firn_model::error::Error;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum size of a rule group in bytes, sufficient for thousands of rules. Rule files are parsed
/// as a whole.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// Mimir's response to an accepted change.
const ACCEPTED: &str = r#"{"status":"success","data":null,"errorType":"","error":""}"#;

/// Returns or changes the object at the path of the request: all namespaces, one namespace or a
/// group. Files are accessed on a blocking thread.
pub(crate) async fn rules(app: ServerApp, request: Request) -> Response {
    let encoding = ResponseEncoding::from_request(&request);
    match edit(app, request).await {
        Ok(RuleEditOutcome::Shown(yaml)) => {
            respond(Bytes::from(yaml), "application/yaml", encoding)
        }
        Ok(RuleEditOutcome::Accepted) => {
            let mut response = Response::new(Body::from(ACCEPTED));
            *response.status_mut() = StatusCode::ACCEPTED;
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
            response
        }
        Ok(RuleEditOutcome::NotReady(response)) => response,
        Err(failure) => failure.into_plain(),
    }
}

enum RuleEditOutcome {
    Shown(String),
    Accepted,
    NotReady(Response),
}

async fn edit(app: ServerApp, request: Request) -> Result<RuleEditOutcome, ApiFailure> {
    let editor = match app.backend() {
        Ok(backend) => backend.rule_editor.clone(),
        Err(state) => return Ok(RuleEditOutcome::NotReady(not_ready(state))),
    };
    let (mut head, body) = request.into_parts();
    require_operator(&app.tenant(&head.headers)?)?;
    let names = Path::<HashMap<String, String>>::from_request_parts(&mut head, &()).await;
    let mut names = names.map_or_else(|_| HashMap::new(), |Path(names)| names);
    let (namespace, group) = (names.remove("namespace"), names.remove("group"));
    if head.method == Method::GET {
        let shown = blocking(editor, move |editor| match (namespace, group) {
            (Some(namespace), Some(group)) => editor.group(&namespace, &group),
            (namespace, _) => editor.list(namespace.as_deref()),
        });
        return shown.await.map(RuleEditOutcome::Shown);
    }
    origin::check_same(&app.parts.web, &head.headers)?;
    let is_post = head.method == Method::POST;
    let text = if is_post {
        read(&app, body).await?
    } else {
        String::new()
    };
    let changed = blocking(editor, move |editor| match (namespace, group) {
        (Some(namespace), None) if is_post => editor.put(&namespace, &text),
        (Some(namespace), group) => editor.remove(&namespace, group.as_deref()),
        (None, _) => Ok(()),
    });
    changed.await.map(|()| RuleEditOutcome::Accepted)
}

async fn read(app: &ServerApp, body: Body) -> Result<String, ApiFailure> {
    let mut held = app.budgets.form().create_reservation();
    let hold = |bytes: usize| {
        let more = bytes.saturating_sub(held.bytes());
        held.grow(more).map_err(ApiFailure::execution)
    };
    let metrics = app.metrics.endpoint(ServerEndpoint::Rules);
    let bytes = body::read(
        app.limits(),
        metrics,
        body,
        Vec::new(),
        GROUP_BYTES_MAX,
        hold,
    );
    let bytes = bytes.await?;
    String::from_utf8(bytes).map_err(|_| ApiFailure::bad_data("rule group is not UTF-8"))
}

async fn blocking<T: Send + 'static>(
    editor: Arc<dyn RuleEditor>,
    act: impl FnOnce(&dyn RuleEditor) -> Result<T, Error> + Send + 'static,
) -> Result<T, ApiFailure> {
    let outcome = run_blocking(move || act(&*editor)).await?;
    outcome.map_err(ApiFailure::request)
}
