//! Who may do what: credentials, what they are good for, and how they are checked.
//!
//! ```text
//! rules      what holds now: users, tokens, grants, headers of every answer
//! hash       what a bcrypt hash may be
//! passwords  checking them: known ones at once, others one after the other
//! rate       so many requests in a while
//! restricted a store of which only a part may be seen
//! gate       a request's credentials -> a grant, or why not        uses all above
//! entry      a request's credentials -> a grant, or an answer      uses the gate
//! ```
//!
//! Invariant: what a credential may do is decided by the rules in force when its request came; a
//! guess costs the guesser time and no one else. Nothing here knows a route.

mod entry;
mod gate;
mod hash;
mod passwords;
mod rate;
mod restricted;
mod rules;

pub use axum::http::{HeaderName, HeaderValue};
pub use hash::{COST_MAX, HashError, check as check_hash};
pub use rules::{Grant, RateLimit, Reach, Rules, Scope, Scopes, User, token_digest};

pub(crate) use entry::{enter, too_many};
pub(crate) use gate::Access;
pub(crate) use restricted::Restricted;
