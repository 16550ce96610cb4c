//! Discoveries that Firn does not run: checked as upstream checks them, and named in a warning.

use super::values::{has_interval, require, require_list};
use crate::settings::config::http::{http, is_set};
use crate::settings::config::read;
use firn_model::yaml::{Node, YamlError};
use std::path::Path;

type Check = fn(&Node, &Path) -> Result<(), YamlError>;

/// The discoveries, by their keys, and what is asked of each section.
pub const CHECKS: &[(&str, Check)] = &[
    ("nerve_sd_configs", |node, _| zookeeper(node, "nerve")),
    ("oci_sd_configs", oci),
    ("serverset_sd_configs", |node, _| {
        zookeeper(node, "serverset")
    }),
];

/// How a platform is reached.
fn client(node: &Node, dir: &Path) -> Result<(), YamlError> {
    http(node, dir).map(|_| ())
}

fn zookeeper(node: &Node, kind: &str) -> Result<(), YamlError> {
    let missing = |what: &str| format!("{kind} SD config must contain at least one {what}");
    require_list(node, "servers", missing("Zookeeper server"))?;
    require_list(node, "paths", missing("path"))?;
    let paths = read::texts(node, "paths").unwrap_or_default();
    match paths.iter().find(|path| !path.starts_with('/')) {
        None => Ok(()),
        Some(path) => {
            let message = format!("{kind} SD config paths must begin with '/': {path}");
            Err(node.error(message))
        }
    }
}

fn oci(node: &Node, dir: &Path) -> Result<(), YamlError> {
    require(node, &[("region", "oci_sd: region is required")])?;
    let auth = read::string_or(node, "auth", "api_key");
    match auth.as_str() {
        "api_key" => {
            for key in ["tenancy", "user", "fingerprint", "key_file"] {
                if !is_set(node, key) {
                    return Err(node.error(format!("oci_sd: api_key auth requires {key}")));
                }
            }
            if is_set(node, "key_passphrase") && is_set(node, "key_passphrase_file") {
                return Err(node.error(
                    "oci_sd: at most one of key_passphrase and key_passphrase_file must be \
                     configured",
                ));
            }
        }
        "instance_principal" => {
            let keys = [
                "tenancy",
                "user",
                "fingerprint",
                "key_file",
                "key_passphrase",
            ];
            let has_any = keys.iter().any(|key| is_set(node, key));
            if has_any || is_set(node, "key_passphrase_file") {
                return Err(node.error(
                    "oci_sd: instance_principal auth must not have tenancy, user, fingerprint, \
                     key_file, key_passphrase, or key_passphrase_file set",
                ));
            }
        }
        _ => {
            return Err(node.error(format!(
                "oci_sd: unknown auth method {auth:?}, expected \"api_key\" or \
                 \"instance_principal\""
            )));
        }
    }
    let compartments = read::texts(node, "compartments").unwrap_or_default();
    if let Some(i) = compartments.iter().position(String::is_empty) {
        return Err(node.error(format!("oci_sd: compartments[{i}] must not be empty")));
    }
    if !has_interval(node) {
        return Err(node.error("oci_sd: refresh_interval must be positive, got 0s"));
    }
    client(node, dir)
}
