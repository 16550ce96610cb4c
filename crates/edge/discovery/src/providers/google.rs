//! Google Cloud: discovery of Compute Engine instances, and access tokens for requests to Google
//! services.
//!
//! ```text
//! service account key | user credentials | metadata server -> access token -> requests
//! ```
//!
//! The behaviour follows upstream's `discovery/gce` and `storage/remote/googleiam`, the
//! documentation of Google's APIs, and the credential order of Google's libraries.

mod credentials;
mod gce;
#[cfg(test)]
mod tests;

pub use credentials::GoogleIamSettings;
pub(super) use gce::PROVIDER;
