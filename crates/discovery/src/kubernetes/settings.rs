//! Configuration of the Kubernetes discovery.

use firn_http_client::HttpSettings;
use std::path::PathBuf;

/// The kind of object that targets are built from, or to which a selector applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubernetesRole {
    /// Nodes, at the addresses of their kubelets.
    Node,
    /// Containers of pods, one target per port.
    Pod,
    /// Services, one target per port.
    Service,
    /// Endpoints of services, from `Endpoints` objects.
    Endpoints,
    /// Endpoints of services, from `EndpointSlice` objects.
    EndpointSlice,
    /// Ingresses, one target per path.
    Ingress,
}

/// An entry of `selectors`, which restricts the watched objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The `role` key: kind of object to restrict.
    pub role: KubernetesRole,
    /// The `label` key: label selector; empty for none.
    pub label: String,
    /// The `field` key: field selector; empty for none.
    pub field: String,
}

/// The `attach_metadata` key: related objects whose names or labels are added to targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attached {
    /// The `node` key: labels of the node.
    pub node: bool,
    /// The `namespace` key: labels of the namespace.
    pub namespace: bool,
    /// The `deployment` key: name of the pod's deployment.
    pub deployment: bool,
    /// The `job` key: name of the pod's job.
    pub job: bool,
    /// The `cronjob` key: name of the pod's cron job.
    pub cronjob: bool,
}

/// An entry of `kubernetes_sd_configs`: the cluster, and the kind of object to discover in it.
#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesSettings {
    /// The `api_server` key: URL of the API.
    pub api_server: Option<String>,
    /// The `kubeconfig_file` key. If this and `api_server` are missing, the service account of the
    /// pod is used.
    pub kubeconfig: Option<PathBuf>,
    /// The `role` key: kind of object to discover.
    pub role: KubernetesRole,
    /// The `namespaces.names` key. Empty for all namespaces, unless `own_namespace` is set.
    pub namespaces: Vec<String>,
    /// The `namespaces.own_namespace` key: watch the namespace of this pod.
    pub own_namespace: bool,
    /// The `selectors` key: restrictions of the watched objects.
    pub selectors: Vec<Selector>,
    /// The `attach_metadata` key: related objects that contribute labels.
    pub attached: Attached,
    /// Settings of the HTTP client, used with `api_server`.
    pub client: HttpSettings,
}
