//! Reader of `kubernetes_sd_configs`: keys and checks.

mod selectors;

use crate::config::http::http;
use crate::config::read;
use firn_discovery::{
    DiscoverySettings, KubernetesAttachMetadata, KubernetesRole, KubernetesSelector,
    KubernetesSettings,
};
use firn_http_client::HttpSettings;
use firn_yaml::{YamlError, YamlNode};
use selectors::{check_fields, check_labels};
use std::path::Path;

/// Roles of discovered objects, by their names in the config.
const ROLES: [(&str, KubernetesRole); 6] = [
    ("node", KubernetesRole::Node),
    ("pod", KubernetesRole::Pod),
    ("service", KubernetesRole::Service),
    ("endpoints", KubernetesRole::Endpoints),
    ("endpointslice", KubernetesRole::EndpointSlice),
    ("ingress", KubernetesRole::Ingress),
];

/// Reads an entry of `kubernetes_sd_configs`, with upstream's checks of role, selectors and access.
pub fn kubernetes(node: &YamlNode, dir: &Path) -> Result<DiscoverySettings, YamlError> {
    let selectors = node.get("selectors").map_or(&[][..], YamlNode::items);
    let named: Vec<(Option<KubernetesRole>, &YamlNode)> = selectors
        .iter()
        .map(|selector| Ok((role_of(selector)?, selector)))
        .collect::<Result<_, YamlError>>()?;
    let Some(role) = role_of(node)? else {
        return Err(node.error(
            "role missing (one of: pod, service, endpoints, endpointslice, node, ingress)",
        ));
    };
    let client = http(node, dir)?;
    let settings = KubernetesSettings {
        api_server: read::text(node, "api_server")
            .filter(|url| !url.is_empty())
            .map(str::to_owned),
        kubeconfig: read::path(node, "kubeconfig_file", dir),
        role,
        namespaces: of(node, "namespaces")
            .and_then(|section| read::texts(section, "names"))
            .unwrap_or_default(),
        own_namespace: is_on(of(node, "namespaces"), "own_namespace"),
        selectors: read_selectors(node, role, &named)?,
        attached: attached(of(node, "attach_metadata")),
        client,
    };
    check_access(node, &settings)?;
    Ok(DiscoverySettings::Kubernetes(Box::new(settings)))
}

fn of<'n>(node: &'n YamlNode, key: &str) -> Option<&'n YamlNode> {
    node.get(key).filter(|section| !section.is_null())
}

fn is_on(section: Option<&YamlNode>, key: &str) -> bool {
    section.is_some_and(|section| read::flag(section, key).unwrap_or(false))
}

/// Returns the role of a section, if it is set.
fn role_of(node: &YamlNode) -> Result<Option<KubernetesRole>, YamlError> {
    let Some(name) = read::text(node, "role") else {
        return Ok(None);
    };
    match ROLES.iter().find(|(known, _)| *known == name) {
        Some((_, role)) => Ok(Some(*role)),
        None => Err(node.error(format!("unknown Kubernetes SD role {name:?}"))),
    }
}

fn name_of(role: KubernetesRole) -> &'static str {
    let known = ROLES.iter().find(|(_, known)| *known == role);
    known.map_or("", |(name, _)| name)
}

/// Rejects a section with more than one way to reach the cluster, like upstream.
fn check_access(node: &YamlNode, settings: &KubernetesSettings) -> Result<(), YamlError> {
    let has_server = read::text(node, "api_server").is_some();
    let has_kubeconfig = settings.kubeconfig.is_some();
    let has_client = settings.client != HttpSettings::default() || has_traces(node);
    let message = if has_server && has_kubeconfig {
        "cannot use 'kubeconfig_file' and 'api_server' simultaneously"
    } else if has_kubeconfig && has_client {
        "cannot use a custom HTTP client configuration together with 'kubeconfig_file'"
    } else if !has_server && has_client {
        "to use custom HTTP client configuration please provide the 'api_server' URL explicitly"
    } else if has_server && settings.own_namespace {
        "cannot use 'api_server' and 'namespaces.own_namespace' simultaneously"
    } else if has_kubeconfig && settings.own_namespace {
        "cannot use 'kubeconfig_file' and 'namespaces.own_namespace' simultaneously"
    } else {
        return Ok(());
    };
    Err(node.error(message))
}

/// Returns whether a section contains client keys with empty values, which upstream distinguishes
/// from missing keys.
fn has_traces(node: &YamlNode) -> bool {
    let is_there = |key: &&str| node.get(key).is_some_and(|value| !value.is_null());
    ["proxy_url", "http_headers", "proxy_connect_header"]
        .iter()
        .any(is_there)
}

fn attached(section: Option<&YamlNode>) -> KubernetesAttachMetadata {
    KubernetesAttachMetadata {
        node: is_on(section, "node"),
        namespace: is_on(section, "namespace"),
        deployment: is_on(section, "deployment"),
        job: is_on(section, "job"),
        cronjob: is_on(section, "cronjob"),
    }
}

fn read_selectors(
    node: &YamlNode,
    role: KubernetesRole,
    named: &[(Option<KubernetesRole>, &YamlNode)],
) -> Result<Vec<KubernetesSelector>, YamlError> {
    let allowed: &[&str] = match role {
        KubernetesRole::Pod => &["pod", "node"],
        KubernetesRole::Service => &["service"],
        KubernetesRole::EndpointSlice => &["pod", "service", "endpointslice"],
        KubernetesRole::Endpoints => &["pod", "service", "endpoints"],
        KubernetesRole::Node => &["node"],
        KubernetesRole::Ingress => &["ingress"],
    };
    let mut selectors: Vec<KubernetesSelector> = Vec::new();
    for (of, selector) in named {
        let name = of.map_or("", name_of);
        let Some(of) = of.filter(|_| allowed.contains(&name)) else {
            return Err(node.error(format!(
                "{} role supports only {} selectors",
                name_of(role),
                allowed.join(", ")
            )));
        };
        if selectors.iter().any(|known| known.role == of) {
            return Err(node.error(format!("duplicated selector role: {name}")));
        }
        let label = read::string(selector, "label");
        let field = read::string(selector, "field");
        check_fields(&field).map_err(|e| selector.error(e))?;
        check_labels(&label).map_err(|e| selector.error(e))?;
        selectors.push(KubernetesSelector {
            role: of,
            label,
            field,
        });
    }
    Ok(selectors)
}
