//! What a config says of a cluster and of the targets in it.

use firn_http_client::HttpSettings;
use std::path::PathBuf;

/// What targets are made of, and what selectors narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubernetesRole {
    /// Nodes, at their kubelets.
    Node,
    /// Containers of pods.
    Pod,
    /// Ports of services.
    Service,
    /// Endpoints of services.
    Endpoints,
    /// The same, from slices.
    EndpointSlice,
    /// Paths of ingresses.
    Ingress,
}

/// One of `selectors`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// `role`
    pub role: KubernetesRole,
    /// `label`
    pub label: String,
    /// `field`
    pub field: String,
}

/// `attach_metadata`: whose labels and names targets get too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// `node`
    pub node: bool,
    /// `namespace`
    pub namespace: bool,
    /// `deployment`
    pub deployment: bool,
    /// `job`
    pub job: bool,
    /// `cronjob`
    pub cronjob: bool,
}

/// One of `kubernetes_sd_configs`
#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesSettings {
    /// `api_server`
    pub api_server: Option<String>,
    /// `kubeconfig_file`; without it and a server, the pod's service account is used.
    pub kubeconfig: Option<PathBuf>,
    /// `role`
    pub role: KubernetesRole,
    /// `namespaces.names`; none is all, unless the own one is asked for.
    pub namespaces: Vec<String>,
    /// `namespaces.own_namespace`
    pub own_namespace: bool,
    /// `selectors`
    pub selectors: Vec<Selector>,
    /// `attach_metadata`
    pub attached: Attached,
    /// How the server is reached.
    pub client: HttpSettings,
}
