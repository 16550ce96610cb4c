//! Settings of the Kubernetes discovery: keys, defaults and checks of upstream.

use super::selectors::{check_fields, check_labels};
use crate::provider::{DiscoveryProvider, DiscoverySettings, ReadResult};
use firn_config_schema::read;
use firn_config_schema::schema::{ConfigKey, ConfigValueShape as Shape, TEXTS, key};
use firn_http_client::HttpSettings;
use firn_http_client::http_config::{HTTP_CLIENT, http};
use firn_yaml::{YamlError, YamlNode};
use std::path::{Path, PathBuf};

/// The provider of `kubernetes_sd_configs`.
pub(in super::super) const PROVIDER: DiscoveryProvider = DiscoveryProvider::new(
    "kubernetes_sd_configs",
    &Shape::Section(&[KEYS, HTTP_CLIENT, CHOICE]),
    read_entry,
)
.printed_with_defaults();

const KEYS: &[ConfigKey] = &[
    key("api_server", Shape::Url),
    key("role", Shape::Text).always(""),
    key("kubeconfig_file", Shape::Path).always(""),
];

const CHOICE: &[ConfigKey] = &[
    key("namespaces", NAMESPACES),
    key("selectors", SELECTORS),
    key("attach_metadata", ATTACHED),
];

const NAMESPACES: Shape = Shape::Section(&[&[
    key("own_namespace", Shape::Bool).always("false"),
    key("names", TEXTS).always(""),
]]);

const SELECTORS: Shape = Shape::List(&Shape::Section(&[&[
    key("role", Shape::Text),
    key("label", Shape::Text),
    key("field", Shape::Text),
]]));

const ATTACHED: Shape = Shape::Section(&[&[
    key("node", Shape::Bool).always("false"),
    key("namespace", Shape::Bool).always("false"),
    key("deployment", Shape::Bool).always("false"),
    key("job", Shape::Bool).always("false"),
    key("cronjob", Shape::Bool).always("false"),
]]);

/// Roles of discovered objects, by their names in the config.
const ROLES: [(&str, KubernetesRole); 6] = [
    ("node", KubernetesRole::Node),
    ("pod", KubernetesRole::Pod),
    ("service", KubernetesRole::Service),
    ("endpoints", KubernetesRole::Endpoints),
    ("endpointslice", KubernetesRole::EndpointSlice),
    ("ingress", KubernetesRole::Ingress),
];

/// The kind of object that targets are built from, or to which a selector applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubernetesRole {
    /// Nodes, with one target per node at the address of its kubelet.
    Node,
    /// Pods, with one target per container port, or per container without ports.
    Pod,
    /// Services, with one target per port at the DNS name of the service.
    Service,
    /// Endpoints of services and further ports of their pods, from `Endpoints` objects.
    Endpoints,
    /// Endpoints of services and further ports of their pods, from `EndpointSlice` objects.
    EndpointSlice,
    /// Ingresses, with one target per path at the host of the rule.
    Ingress,
}

/// An entry of `selectors`, which restricts the watched objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSelector {
    /// The `role` key: kind of object that the selector restricts.
    pub role: KubernetesRole,
    /// The `label` key: label selector in the syntax of Kubernetes; empty for none.
    pub label: String,
    /// The `field` key: field selector in the syntax of Kubernetes; empty for none.
    pub field: String,
}

/// The `attach_metadata` key: related objects whose names or labels are added to targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KubernetesAttachMetadata {
    /// The `node` key: add the labels and annotations of the pod's node.
    pub node: bool,
    /// The `namespace` key: add the labels and annotations of the namespace.
    pub namespace: bool,
    /// The `deployment` key: add the name of the deployment that owns the pod's replica set.
    pub deployment: bool,
    /// The `job` key: add the name of the job that owns the pod.
    pub job: bool,
    /// The `cronjob` key: add the name of the cron job that owns the pod's job.
    pub cronjob: bool,
}

/// An entry of `kubernetes_sd_configs`: the cluster, and the kind of object to discover in it.
#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesSettings {
    /// The `api_server` key: URL of the API. If missing, the API of the pod's own cluster.
    pub api_server: Option<String>,
    /// The `kubeconfig_file` key. If this and `api_server` are missing, the service account of the
    /// pod is used.
    pub kubeconfig: Option<PathBuf>,
    /// The `role` key: kind of object from which targets are built.
    pub role: KubernetesRole,
    /// The `namespaces.names` key: namespaces to watch. Empty for all, unless `own_namespace` is
    /// set.
    pub namespaces: Vec<String>,
    /// The `namespaces.own_namespace` key: also watch the namespace of the pod in which Firn runs.
    pub own_namespace: bool,
    /// The `selectors` key: label and field selectors that restrict the watched objects.
    pub selectors: Vec<KubernetesSelector>,
    /// The `attach_metadata` key: related objects that contribute labels to targets.
    pub attached: KubernetesAttachMetadata,
    /// Settings of the HTTP client, used only together with `api_server`.
    pub client: HttpSettings,
}

/// Reads an entry of `kubernetes_sd_configs`, with upstream's checks of role, selectors and access.
fn read_entry(node: &YamlNode, dir: &Path) -> ReadResult {
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
    Ok(DiscoverySettings::provided(settings))
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
