//! Google's cloud: targets from its instances, and tokens for those who ask its services.
//!
//! ```text
//! key of a service account | login of a user | word of this machine -> token -> requests
//! ```
//!
//! Facts are from upstream's `discovery/gce` and `storage/remote/googleiam`, from Google's APIs,
//! and from the order in which its libraries look for credentials.

mod credentials;
mod gce;
#[cfg(test)]
mod tests;

pub use credentials::GoogleIamSettings;
pub use gce::GceSettings;
pub(super) use gce::Instances;
