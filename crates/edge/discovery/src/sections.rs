//! The discoveries in a section of a config: a scrape job or an Alertmanager section.
//!
//! All functions walk the registry of providers. `static_configs` is beside it, because its entries
//! are the groups of one list that needs no task.

use crate::group::{GROUPS, read_yaml_group};
use crate::provider::{DiscoveryProvider, DiscoverySettings};
use crate::providers::PROVIDERS;
use firn_config_schema::printed::{PrintedField, PrintedFieldKind, always, field};
use firn_config_schema::schema::{ConfigKey, key};
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;

/// Keys of all discoveries in a scrape job or an Alertmanager section.
pub const DISCOVERY_KEYS: &[ConfigKey] = &collect_keys();

const fn collect_keys() -> [ConfigKey; PROVIDERS.len() + 1] {
    let mut keys = [STATIC; PROVIDERS.len() + 1];
    let mut i = 0;
    while i < PROVIDERS.len() {
        keys[i + 1] = PROVIDERS[i].key;
        i += 1;
    }
    keys
}

const STATIC: ConfigKey = key("static_configs", GROUPS);

const PRINTED_GROUP: &[PrintedField] = &[
    always("targets", PrintedFieldKind::Texts, ""),
    field("labels", PrintedFieldKind::TextMap),
];

/// Returns the names of all discoveries, as the API lists them.
pub fn discovery_names() -> impl Iterator<Item = &'static str> {
    DISCOVERY_KEYS.iter().map(|key| {
        let name = key.name.strip_suffix("_sd_configs");
        name.or(key.name.strip_suffix("_configs"))
            .unwrap_or(key.name)
    })
}

/// Returns the printed form of a discovery's list, or `None` if `key` is no discovery.
pub fn printed_discovery(key: &str) -> Option<PrintedFieldKind> {
    if key == STATIC.name {
        return Some(PrintedFieldKind::List(&[PRINTED_GROUP]));
    }
    find_provider(key).map(|provider| provider.printed)
}

fn find_provider(key: &str) -> Option<&'static DiscoveryProvider> {
    PROVIDERS.iter().find(|provider| provider.key.name == key)
}

/// Reads the discoveries of a section that has the shapes of [`DISCOVERY_KEYS`]. `dir` is the
/// folder of the config.
pub fn read_discoveries(
    section: &YamlNode,
    dir: &Path,
) -> Result<Vec<DiscoverySettings>, YamlError> {
    let mut discoveries = Vec::new();
    let list = |key: &str| section.get(key).map_or(&[][..], YamlNode::items);
    let statics = list(STATIC.name);
    if !statics.is_empty() {
        let groups = statics.iter().map(read_yaml_group).collect();
        discoveries.push(DiscoverySettings::Static(groups));
    }
    for provider in PROVIDERS {
        for entry in list(provider.key.name) {
            discoveries.push((provider.read)(entry, dir)?);
        }
    }
    Ok(discoveries)
}

#[cfg(test)]
mod tests;
