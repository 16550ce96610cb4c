//! `/api/v1/notifications`: conditions that need the operator's attention, as a list or as a stream
//! of server-sent events. Both are available while the server starts.

use super::answer::{ResponseAnnotations, document};
use super::times::format_rfc3339;
use crate::app::ServerApp;
use crate::http::channel::ChannelBody;
use crate::http::produce::{ResponseEncoding, respond};
use crate::notices::{ActiveNotice, Notice};
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use std::io;
use tokio::sync::broadcast::error::RecvError;

/// Maximum number of events that are queued for a client.
const EVENTS_WAITING: usize = 4;

fn to_json(noted: &ActiveNotice) -> Value {
    json!({
        "text": noted.notice.text(),
        "date": format_rfc3339(noted.since),
        "active": noted.is_active,
    })
}

/// Returns the active notifications as a list, in the format of Prometheus.
pub(crate) async fn list(app: ServerApp, request: Request) -> Response {
    let all: Vec<_> = app.notices.active().iter().map(to_json).collect();
    let data = Value::from(all).to_string();
    let text = document(data.as_bytes(), &ResponseAnnotations::default());
    respond(
        Bytes::from(text),
        "application/json",
        ResponseEncoding::from_request(&request),
    )
}

/// Streams the active notifications and all changes until the client disconnects or the server
/// stops. Answers 204 if there are too many clients.
pub(crate) async fn live(app: ServerApp, _request: Request) -> Response {
    let Ok(place) = app.listener_slots.clone().try_acquire_owned() else {
        let mut response = event_stream_response(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return response;
    };
    let (active, mut changes) = app.notices.subscribe();
    let (body, sender) = ChannelBody::open(EVENTS_WAITING, None);
    tokio::spawn(async move {
        for noted in &active {
            if sender.send(Ok(event(noted))).await.is_err() {
                return;
            }
        }
        loop {
            tokio::select! {
                () = sender.closed() => return,
                change = changes.recv() => match change {
                    Ok(noted) => {
                        let is_sent = sender.send(Ok(event(&noted))).await.is_ok();
                        // A shutdown waits for open responses.
                        if !is_sent || noted.notice == Notice::Stopping {
                            return;
                        }
                    }
                    // The client missed events, so the stream ends and the client must reconnect.
                    Err(RecvError::Lagged(_) | RecvError::Closed) => {
                        let _ = sender.send(Err(io::ErrorKind::Other.into())).await;
                        drop(place);
                        return;
                    }
                },
            }
        }
    });
    event_stream_response(body)
}

/// Returns a response with the headers of an event stream, which must not be cached.
fn event_stream_response(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    for (name, value) in headers {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

fn event(noted: &ActiveNotice) -> Bytes {
    format!("data: {}\n\n", to_json(noted)).into()
}
