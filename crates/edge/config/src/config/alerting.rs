//! The section `alerting`: Alertmanagers and relabeling of alerts.

use super::jobs::check_static_targets;
use super::rules::{RULES, rules};
use super::signing::{SIGV4, check_sigv4};
use ConfigValueShape::{Duration, List, Section, Text};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, key};
use firn_config_schema::section::ConfigSection;
use firn_discovery::{DISCOVERY_KEYS, read_discoveries, read_sigv4};
use firn_http_client::AuthMethod;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_ingest::relabel::RelabelRule;
use firn_model::names::NameScheme;
use firn_scrape::alertmanagers::AlertmanagerSettings;
use firn_yaml::YamlError;
use std::sync::Arc;

/// Keys of the section.
pub const KEYS: &[ConfigKey] = &[
    key("alert_relabel_configs", RULES),
    key(
        "alertmanagers",
        List(&Section(&[HTTP_CLIENT, ALERTMANAGER, DISCOVERY_KEYS])),
    ),
];

const ALERTMANAGER: &[ConfigKey] = &[
    key("sigv4", Section(&[SIGV4])),
    key("scheme", Text).or("http"),
    key("path_prefix", Text),
    key("timeout", Duration).or("10s"),
    key("api_version", Text).always("v2"),
    key("relabel_configs", RULES),
    key("alert_relabel_configs", RULES),
];

/// Settings of the section `alerting`. Without the section there is no Alertmanager, and alerts are
/// not sent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AlertingSettings {
    /// `alert_relabel_configs`: relabeling of alerts before they are sent to any Alertmanager.
    pub relabel: Arc<Vec<RelabelRule>>,
    /// `alertmanagers`: sections of discovered Alertmanagers, in the order of the config.
    pub alertmanagers: Vec<Arc<AlertmanagerSettings>>,
}

/// Reads the section.
pub fn alerting(
    section: ConfigSection<'_>,
    names: NameScheme,
) -> Result<AlertingSettings, YamlError> {
    let managers = section.sections("alertmanagers");
    Ok(AlertingSettings {
        relabel: Arc::new(rules(section, "alert_relabel_configs", names)?),
        alertmanagers: managers
            .map(|manager| alertmanager(manager, names).map(Arc::new))
            .collect::<Result<_, _>>()?,
    })
}

fn alertmanager(
    section: ConfigSection<'_>,
    names: NameScheme,
) -> Result<AlertmanagerSettings, YamlError> {
    let (node, dir) = (section.node(), section.dir());
    let client = http(node, dir)?;
    if let Some(signing) = section.section("sigv4").if_set() {
        if client.auth != AuthMethod::None {
            return Err(section.error(
                "at most one of basic_auth, authorization, oauth2, & sigv4 must be configured",
            ));
        }
        check_sigv4(signing.node())?;
    }
    // Only v2 is supported.
    let version = section.text("api_version");
    if version != "v2" {
        return Err(section.error(format!(
            "expected Alertmanager api version to be one of [v2] but got {version}"
        )));
    }
    let settings = AlertmanagerSettings {
        scheme: section.text("scheme").to_owned(),
        path_prefix: section.text("path_prefix").to_owned(),
        timeout: section.duration("timeout"),
        http: client,
        sigv4: read_sigv4(node, dir)?,
        discoveries: read_discoveries(node, dir)?,
        relabel: rules(section, "relabel_configs", names)?,
        alert_relabel: rules(section, "alert_relabel_configs", names)?,
    };
    check_static_targets(node, &settings.discoveries, &settings.relabel)?;
    Ok(settings)
}
