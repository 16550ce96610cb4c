//! Kubernetes objects, reduced to the fields from which labels are built.

use crate::group::or_default;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// Labels or annotations of an object.
pub(super) type Map = BTreeMap<String, String>;

/// A kind of object that can be listed and watched.
pub(super) trait KubernetesResource: DeserializeOwned + Send + 'static {
    /// URL path of the API group.
    const GROUP: &'static str;
    /// Plural name of the kind in URL paths.
    const PLURAL: &'static str;
    /// Whether objects of this kind belong to a namespace.
    const IS_NAMESPACED: bool = true;

    fn metadata(&self) -> &ObjectMeta;
}

macro_rules! resource {
    ($kind:ty, $group:literal, $plural:literal $(, $is_namespaced:literal)?) => {
        impl KubernetesResource for $kind {
            const GROUP: &'static str = $group;
            const PLURAL: &'static str = $plural;
            $(const IS_NAMESPACED: bool = $is_namespaced;)?

            fn metadata(&self) -> &ObjectMeta {
                &self.metadata
            }
        }
    };
}

resource!(KubernetesPod, "/api/v1", "pods");
resource!(KubernetesNode, "/api/v1", "nodes", false);
resource!(KubernetesNamespace, "/api/v1", "namespaces", false);
resource!(KubernetesService, "/api/v1", "services");
resource!(KubernetesEndpoints, "/api/v1", "endpoints");
resource!(EndpointSlice, "/apis/discovery.k8s.io/v1", "endpointslices");
resource!(Ingress, "/apis/networking.k8s.io/v1", "ingresses");
resource!(ReplicaSet, "/apis/apps/v1", "replicasets");
resource!(KubernetesJob, "/apis/batch/v1", "jobs");

/// Metadata that objects of every kind have.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ObjectMeta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) labels: Map,
    #[serde(deserialize_with = "or_default")]
    pub(super) annotations: Map,
    #[serde(deserialize_with = "or_default")]
    pub(super) owner_references: Vec<KubernetesOwnerRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesOwnerRef {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) controller: Option<bool>,
}

impl ObjectMeta {
    /// Returns the key that is unique among objects of one kind: `namespace/name`, or `name`
    /// without a namespace.
    pub(super) fn object_key(&self) -> String {
        match self.namespace.as_str() {
            "" => self.name.clone(),
            namespace => format!("{namespace}/{}", self.name),
        }
    }

    /// Returns the owner that manages this object, such as the replica set of a pod.
    pub(super) fn find_controller(&self) -> Option<&KubernetesOwnerRef> {
        let mut owners = self.owner_references.iter();
        owners.find(|owner| owner.controller == Some(true))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesNamespace {
    pub(super) metadata: ObjectMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplicaSet {
    pub(super) metadata: ObjectMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesJob {
    pub(super) metadata: ObjectMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesNode {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: KubernetesNodeSpec,
    pub(super) status: KubernetesNodeStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesNodeSpec {
    #[serde(rename = "providerID")]
    pub(super) provider_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct KubernetesNodeStatus {
    #[serde(deserialize_with = "or_default")]
    pub(super) conditions: Vec<KubernetesCondition>,
    #[serde(deserialize_with = "or_default")]
    pub(super) addresses: Vec<NodeAddress>,
    pub(super) daemon_endpoints: DaemonEndpoints,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesCondition {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NodeAddress {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) address: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct DaemonEndpoints {
    pub(super) kubelet_endpoint: DaemonEndpoint,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct DaemonEndpoint {
    pub(super) port: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesPod {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: PodSpec,
    pub(super) status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub(super) node_name: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) containers: Vec<KubernetesContainer>,
    #[serde(deserialize_with = "or_default")]
    pub(super) init_containers: Vec<KubernetesContainer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesContainer {
    pub(super) name: String,
    pub(super) image: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<ContainerPort>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ContainerPort {
    pub(super) name: String,
    pub(super) container_port: i64,
    pub(super) protocol: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodStatus {
    #[serde(rename = "podIP")]
    pub(super) pod_ip: String,
    #[serde(rename = "hostIP")]
    pub(super) host_ip: String,
    pub(super) phase: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) conditions: Vec<KubernetesCondition>,
    #[serde(deserialize_with = "or_default")]
    pub(super) container_statuses: Vec<KubernetesContainerStatus>,
    #[serde(deserialize_with = "or_default")]
    pub(super) init_container_statuses: Vec<KubernetesContainerStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesContainerStatus {
    pub(super) name: String,
    #[serde(rename = "containerID")]
    pub(super) container_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesService {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: KubernetesServiceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct KubernetesServiceSpec {
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<ServicePort>,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(rename = "clusterIP")]
    pub(super) cluster_ip: String,
    pub(super) external_name: String,
    #[serde(rename = "loadBalancerIP")]
    pub(super) load_balancer_ip: String,
    pub(super) ip_family_policy: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) ip_families: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServicePort {
    pub(super) name: String,
    pub(super) port: i64,
    pub(super) protocol: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubernetesEndpoints {
    pub(super) metadata: ObjectMeta,
    #[serde(deserialize_with = "or_default")]
    pub(super) subsets: Vec<EndpointSubset>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EndpointSubset {
    #[serde(deserialize_with = "or_default")]
    pub(super) addresses: Vec<EndpointAddress>,
    #[serde(deserialize_with = "or_default")]
    pub(super) not_ready_addresses: Vec<EndpointAddress>,
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<ServicePort>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EndpointAddress {
    pub(super) ip: String,
    pub(super) hostname: String,
    pub(super) node_name: Option<String>,
    pub(super) target_ref: Option<ObjectRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectRef {
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EndpointSlice {
    pub(super) metadata: ObjectMeta,
    pub(super) address_type: String,
    #[serde(deserialize_with = "or_default")]
    pub(super) endpoints: Vec<KubernetesEndpoint>,
    #[serde(deserialize_with = "or_default")]
    pub(super) ports: Vec<EndpointPort>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct KubernetesEndpoint {
    #[serde(deserialize_with = "or_default")]
    pub(super) addresses: Vec<String>,
    pub(super) conditions: EndpointConditions,
    pub(super) hostname: Option<String>,
    pub(super) target_ref: Option<ObjectRef>,
    #[serde(deserialize_with = "or_default")]
    pub(super) deprecated_topology: Map,
    pub(super) node_name: Option<String>,
    pub(super) zone: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct EndpointConditions {
    pub(super) ready: Option<bool>,
    pub(super) serving: Option<bool>,
    pub(super) terminating: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct EndpointPort {
    pub(super) name: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) port: Option<i64>,
    pub(super) app_protocol: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Ingress {
    pub(super) metadata: ObjectMeta,
    pub(super) spec: IngressSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct IngressSpec {
    pub(super) ingress_class_name: Option<String>,
    #[serde(deserialize_with = "or_default")]
    pub(super) rules: Vec<IngressRule>,
    #[serde(deserialize_with = "or_default")]
    pub(super) tls: Vec<IngressTls>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IngressRule {
    pub(super) host: String,
    pub(super) http: Option<IngressHttp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IngressHttp {
    #[serde(deserialize_with = "or_default")]
    pub(super) paths: Vec<IngressPath>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IngressPath {
    pub(super) path: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct IngressTls {
    #[serde(deserialize_with = "or_default")]
    pub(super) hosts: Vec<String>,
}
