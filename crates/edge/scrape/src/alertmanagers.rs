//! Alertmanagers: discovered like scrape targets, each with the URL to which alerts are sent.
//!
//! Follows upstream's `notifier/alertmanager.go` for the labels that relabelling sees and for its
//! effects.

use firn_discovery::{DiscoverySettings, SigV4Settings, TargetGroup, check_address};
use firn_http_client::{BodyLimit, HttpClient, HttpSettings, USER_AGENT, encode_path, read_body};
use firn_ingest::relabel::{self, RelabelRule};
use firn_ingest::targets::DiscoveredAlertmanagers;
use firn_model::error::Error;
use firn_model::labels::LabelsBuilder;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT as AGENT};
use hyper::{StatusCode, Uri};
use std::time::Duration;

const ADDRESS: &str = "__address__";
const SCHEME: &str = "__scheme__";
const PATH: &str = "__alerts_path__";

/// Path of the API v2 for alerts, after the path prefix.
const ALERTS: &str = "/api/v2/alerts";

/// One entry of `alerting.alertmanagers`, with Prometheus's defaults filled in by the configuration
/// reader.
#[derive(Debug, PartialEq)]
pub struct AlertmanagerSettings {
    /// URL scheme of the Alertmanagers: `scheme`.
    pub scheme: String,
    /// Prefix of the API's path: `path_prefix`.
    pub path_prefix: String,
    /// Timeout of a request: `timeout`.
    pub timeout: Duration,
    /// TLS, proxy and authentication settings of the HTTP client.
    pub http: HttpSettings,
    /// AWS request signing: `sigv4`.
    pub sigv4: Option<SigV4Settings>,
    /// Service discoveries that find the Alertmanagers.
    pub discoveries: Vec<DiscoverySettings>,
    /// `relabel_configs`, applied to the Alertmanagers.
    pub relabel: Vec<RelabelRule>,
    /// `alert_relabel_configs`, applied to the alerts that they receive.
    pub alert_relabel: Vec<RelabelRule>,
}

impl AlertmanagerSettings {
    /// Returns the Alertmanagers in `groups`. A group with an invalid address is left out as a
    /// whole, as in upstream, and `wrong` is called with the error.
    pub fn find_alertmanagers<'g>(
        &self,
        groups: impl Iterator<Item = &'g TargetGroup>,
        mut wrong: impl FnMut(&str),
    ) -> DiscoveredAlertmanagers {
        let mut all = DiscoveredAlertmanagers::default();
        for group in groups {
            match self.find_in_group(group) {
                Ok(found) => {
                    for url in found.active {
                        if !all.active.contains(&url) {
                            all.active.push(url);
                        }
                    }
                    all.dropped.extend(found.dropped);
                }
                Err(e) => wrong(&e),
            }
        }
        all
    }

    /// Returns the first error in the addresses of a group, for the validation of a configuration.
    pub fn check_addresses(&self, group: &TargetGroup) -> Result<(), String> {
        self.find_in_group(group).map(|_| ())
    }

    fn find_in_group(&self, group: &TargetGroup) -> Result<DiscoveredAlertmanagers, String> {
        let mut found = DiscoveredAlertmanagers::default();
        for address in &group.targets {
            let mut labels = LabelsBuilder::default();
            labels.set(SCHEME, self.scheme.as_bytes());
            labels.set(PATH, join_api_path(&self.path_prefix).as_bytes());
            for (name, value) in &group.labels {
                labels.set(name, value.as_bytes());
            }
            labels.set(ADDRESS, address.as_bytes());
            let before = build_url(&labels);
            if !relabel::apply_rules(&self.relabel, &mut labels) {
                found.dropped.push(before);
                continue;
            }
            check_address(&String::from_utf8_lossy(labels.get(ADDRESS)))?;
            found.active.push(build_url(&labels));
        }
        Ok(found)
    }
}

/// Largest part of a response that is read, so that the connection can be reused, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// Posts alerts as JSON to an Alertmanager. Fails with
/// [`firn_model::error::ErrorKind::Unavailable`] unless the response is a success.
pub async fn post_alerts(client: &HttpClient, url: &str, body: Vec<u8>) -> Result<(), Error> {
    let unavailable = |message: String| Error::unavailable(message);
    let uri: Uri = url
        .parse()
        .map_err(|e| unavailable(format!("parse {url:?}: {e}")))?;
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (AGENT, HeaderValue::from_static(USER_AGENT)),
    ]);
    let response = client.post(&uri, &headers, body.into()).await?;
    let status = response.status();
    if !status.is_success() {
        return Err(unavailable(format!(
            "bad response status {}",
            format_status(status)
        )));
    }
    // The body is irrelevant, and the alerts are accepted even if it cannot be read.
    let _ = read_body(response, BodyLimit::from_bytes_max(ANSWER_BYTES_MAX)).await;
    Ok(())
}

/// Formats a status like `500 Internal Server Error`.
fn format_status(status: StatusCode) -> String {
    let reason = status.canonical_reason().unwrap_or_default();
    format!("{} {reason}", status.as_u16())
        .trim_end()
        .to_owned()
}

/// Returns the path of the alerts API after `prefix`, normalized like Go's `path.Join`.
fn join_api_path(prefix: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in prefix.split('/').chain(ALERTS.split('/')) {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

fn build_url(labels: &LabelsBuilder) -> String {
    let text = |name| String::from_utf8_lossy(labels.get(name)).into_owned();
    let (scheme, address, path) = (text(SCHEME), text(ADDRESS), encode_path(&text(PATH)));
    let colon = if scheme.is_empty() { "" } else { ":" };
    let slash = if path.is_empty() || path.starts_with('/') {
        ""
    } else {
        "/"
    };
    format!("{scheme}{colon}//{address}{slash}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_ingest::relabel::{RelabelAction, RelabelRuleSettings};
    use firn_model::names::NameScheme;

    fn settings(rules: &[RelabelRuleSettings]) -> AlertmanagerSettings {
        let compile = |rule: &RelabelRuleSettings| rule.clone().compile(NameScheme::Utf8).unwrap();
        AlertmanagerSettings {
            scheme: "http".into(),
            path_prefix: "/am/../x y/".into(),
            timeout: Duration::from_secs(10),
            sigv4: None,
            http: HttpSettings::default(),
            discoveries: Vec::new(),
            relabel: rules.iter().map(compile).collect(),
            alert_relabel: Vec::new(),
        }
    }

    fn group(targets: &[&str], labels: &[(&str, &str)]) -> TargetGroup {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        TargetGroup {
            targets: targets.iter().map(|t| (*t).to_owned()).collect(),
            labels: labels.iter().map(pair).collect(),
        }
    }

    #[test]
    fn alertmanagers_have_the_url_that_relabelling_leaves() {
        let rules = [
            RelabelRuleSettings {
                source_labels: Some(vec!["__meta_drop".into()]),
                regex: Some("yes".into()),
                action: RelabelAction::Drop,
                ..RelabelRuleSettings::default()
            },
            RelabelRuleSettings {
                source_labels: Some(vec!["__meta_path".into()]),
                regex: Some("(.+)".into()),
                target_label: PATH.into(),
                ..RelabelRuleSettings::default()
            },
        ];
        let groups = [
            group(&["a:1", "a:1", "b"], &[]),
            group(&["c"], &[("__scheme__", "https"), ("__meta_path", "v2")]),
            group(&["d:1"], &[("__meta_drop", "yes"), ("__meta_path", "v2")]),
            group(&["e", "http://f"], &[]),
        ];
        let mut errors = Vec::new();
        let found =
            settings(&rules).find_alertmanagers(groups.iter(), |e| errors.push(e.to_owned()));
        assert_eq!(
            found,
            DiscoveredAlertmanagers {
                active: vec![
                    "http://a:1/x%20y/api/v2/alerts".into(),
                    "http://b/x%20y/api/v2/alerts".into(),
                    "https://c/v2".into(),
                ],
                dropped: vec!["http://d:1/x%20y/api/v2/alerts".into()],
            }
        );
        assert_eq!(errors, ["\"http://f\" is not a valid hostname"]);
    }
}
