//! The section `alerting`: Alertmanagers and relabeling of alerts.

use super::http::http;
use super::jobs::check_static_targets;
use super::read;
use super::rules::rules;
use super::signing::check_sigv4;
use firn_discovery::{read_discoveries, read_sigv4};
use firn_http_client::AuthMethod;
use firn_ingest::alertmanagers::AlertmanagerSettings;
use firn_ingest::relabel::RelabelRule;
use firn_model::names::NameScheme;
use firn_yaml::{YamlError, YamlNode};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Prometheus's default for `timeout` of an Alertmanager section.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Settings of the section `alerting`. Without the section there is no Alertmanager, and alerts are
/// not sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertingSettings {
    /// `alert_relabel_configs`: relabeling of alerts before they are sent to any Alertmanager.
    pub relabel: Arc<Vec<RelabelRule>>,
    /// `alertmanagers`: sections of discovered Alertmanagers, in the order of the config.
    pub alertmanagers: Vec<Arc<AlertmanagerSettings>>,
}

/// Reads the section of a config in the folder `dir`.
pub fn alerting(
    root: &YamlNode,
    names: NameScheme,
    dir: &Path,
) -> Result<AlertingSettings, YamlError> {
    let Some(section) = root.get("alerting").filter(|section| !section.is_null()) else {
        return Ok(AlertingSettings::default());
    };
    let list = section
        .get("alertmanagers")
        .map_or(&[][..], YamlNode::items);
    let one = |node: &YamlNode| alertmanager(node, names, dir).map(Arc::new);
    Ok(AlertingSettings {
        relabel: Arc::new(rules(section, "alert_relabel_configs", names)?),
        alertmanagers: list.iter().map(one).collect::<Result<_, _>>()?,
    })
}

fn alertmanager(
    node: &YamlNode,
    names: NameScheme,
    dir: &Path,
) -> Result<AlertmanagerSettings, YamlError> {
    let client = http(node, dir)?;
    let signing = node.get("sigv4").filter(|section| !section.is_null());
    if let Some(section) = signing {
        if client.auth != AuthMethod::None {
            return Err(node.error(
                "at most one of basic_auth, authorization, oauth2, & sigv4 must be configured",
            ));
        }
        check_sigv4(section)?;
    }
    check_version(node)?;
    let settings = AlertmanagerSettings {
        scheme: read::text(node, "scheme").unwrap_or("http").to_owned(),
        path_prefix: read::string(node, "path_prefix"),
        timeout: read::duration(node, "timeout").unwrap_or(TIMEOUT),
        http: client,
        sigv4: read_sigv4(node, dir)?,
        discoveries: read_discoveries(node, dir)?,
        relabel: rules(node, "relabel_configs", names)?,
        alert_relabel: rules(node, "alert_relabel_configs", names)?,
    };
    check_static_targets(node, &settings.discoveries, &settings.relabel)?;
    Ok(settings)
}

/// Validates `api_version` of an Alertmanager section. Only v2 is supported.
fn check_version(node: &YamlNode) -> Result<(), YamlError> {
    match read::text(node, "api_version") {
        None | Some("v2") => Ok(()),
        Some(other) => Err(node.error(format!(
            "expected Alertmanager api version to be one of [v2] but got {other}"
        ))),
    }
}
