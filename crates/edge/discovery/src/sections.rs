//! The discoveries in a section of a config: a scrape job or an Alertmanager section.
//!
//! All functions walk the registry of providers. `static_configs` is beside it, because its entries
//! are the groups of one list that needs no task.

use crate::group::{GROUPS, read_yaml_group};
use crate::provider::DiscoverySettings;
use crate::providers::PROVIDERS;
use firn_config_schema::schema::{ConfigKey, key};
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;

/// Keys of all discoveries in a scrape job or an Alertmanager section, sorted by name, which is the
/// order in which they are printed.
pub const DISCOVERY_KEYS: &[ConfigKey] = &collect_keys();

const fn collect_keys() -> [ConfigKey; PROVIDERS.len() + 1] {
    let mut keys = [STATIC; PROVIDERS.len() + 1];
    let mut i = 0;
    while i < PROVIDERS.len() {
        let key = PROVIDERS[i].key;
        let place = if is_before(key.name, STATIC.name) {
            i
        } else {
            i + 1
        };
        keys[place] = key;
        i += 1;
    }
    keys
}

/// Returns whether `left` is less than `right`.
const fn is_before(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut i = 0;
    while i < left.len() && i < right.len() {
        if left[i] != right[i] {
            return left[i] < right[i];
        }
        i += 1;
    }
    left.len() < right.len()
}

const STATIC: ConfigKey = key("static_configs", GROUPS);

/// Returns the names of all discoveries, as the API lists them.
pub fn discovery_names() -> impl Iterator<Item = &'static str> {
    DISCOVERY_KEYS.iter().map(|key| {
        let name = key.name.strip_suffix("_sd_configs");
        name.or(key.name.strip_suffix("_configs"))
            .unwrap_or(key.name)
    })
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
