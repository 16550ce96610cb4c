//! Microsoft Azure: discovery of virtual machines, and access tokens for requests to Azure
//! services.
//!
//! ```text
//! client secret | managed identity | workload identity token -> access token -> requests
//! ```
//!
//! The behaviour follows upstream's `discovery/azure` and `storage/remote/azuread`, the
//! documentation of the Azure APIs, and the credential order of the Azure SDK.

mod certificate;
mod identity;
mod machines;
#[cfg(test)]
mod tests;

pub use identity::{AzureAdSettings, AzureCloud, AzureIdentity};
pub(super) use machines::AzureDiscovery;
pub use machines::AzureSettings;
