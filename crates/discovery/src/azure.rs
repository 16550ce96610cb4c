//! Microsoft's cloud: targets from its machines, and tokens for those who ask its services.
//!
//! ```text
//! secret | word of this machine | token of a workload -> token -> requests
//! ```
//!
//! Facts are from upstream's `discovery/azure` and `storage/remote/azuread`, from Microsoft's APIs,
//! and from the order in which its libraries look for credentials.

mod certificate;
mod identity;
mod machines;
#[cfg(test)]
mod tests;

pub use identity::{AzureAdSettings, AzureCloud, AzureIdentity};
pub use machines::AzureSettings;
pub(super) use machines::Machines;
