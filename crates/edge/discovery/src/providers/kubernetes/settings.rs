//! Configuration of the Kubernetes discovery.

use firn_http_client::HttpSettings;
use std::path::PathBuf;

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
