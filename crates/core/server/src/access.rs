//! Authentication and authorization: checks the credentials of requests and decides the routes and
//! series that they may use.
//!
//! ```text
//! rules      current configuration: users, tokens, grants, headers of all responses
//! passwords  password checks: cached results immediately, others one at a time
//! rate       request rate limit
//! restricted a store limited to some series
//! gate       credentials of a request -> grant or refusal      uses all of the above
//! entry      credentials of a request -> grant or response     uses the gate
//! ```
//!
//! Invariant: a request is authorized by the rules that are in force when it arrives. Password
//! guessing costs the attacker time and does not slow down other clients. The module is independent
//! of routes.

mod entry;
mod gate;
mod passwords;
mod rate;
mod restricted;
mod rules;

pub use axum::http::{HeaderName, HeaderValue};
pub use rules::{AccessRules, ResponseVisibility, WebUser, token_digest};

pub(crate) use entry::{enter, too_many};
pub(crate) use gate::AccessGate;
pub(crate) use restricted::RestrictedStore;
