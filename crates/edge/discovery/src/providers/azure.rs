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
mod settings;
#[cfg(test)]
mod tests;

pub use identity::{AzureAdSettings, AzureCloud, AzureIdentity};
pub(super) use settings::PROVIDER;

use crate::provider::{DiscoveryMechanism, DiscoveryStarter, DiscoveryTask};
use machines::AzureDiscovery;
use settings::AzureSettings;

impl DiscoveryMechanism for AzureSettings {
    fn mechanism(&self) -> &'static str {
        "azure"
    }

    fn start(&self, starter: &DiscoveryStarter) -> DiscoveryTask {
        starter.refresh(AzureDiscovery::new(
            self,
            starter.bytes_max,
            starter.clock.clone(),
        ))
    }
}
