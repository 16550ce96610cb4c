//! All stores of a cluster that a role needs, and the targets that are built from them.

use super::access::Cluster;
use super::endpoints::{Around, endpoints, slice};
use super::labels::{none, set_maps};
use super::objects::{
    EndpointSlice, Endpoints, Ingress, Job, Namespace, Node, Pod, ReplicaSet, Resource, Service,
};
use super::pods::{self, Owners, node_labels};
use super::reflector::Reflector;
use super::roles;
use super::settings::{KubernetesRole, KubernetesSettings};
use super::store::{Held, Store};
use crate::discover::BoxFuture;
use crate::group::Group;
use crate::meta::Meta;
use crate::published::Published;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Stores of a cluster's objects, one per kind. Stores of kinds that the role does not need remain
/// empty.
pub(super) struct World {
    settings: KubernetesSettings,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    namespaces: Arc<Store<Namespace>>,
    services: Arc<Store<Service>>,
    endpoints: Arc<Store<Endpoints>>,
    slices: Arc<Store<EndpointSlice>>,
    ingresses: Arc<Store<Ingress>>,
    replica_sets: Arc<Store<ReplicaSet>>,
    jobs: Arc<Store<Job>>,
}

/// Parameters that are common to the reflectors of a cluster while they are started.
struct Reflecting<'w> {
    settings: &'w KubernetesSettings,
    cluster: &'w Arc<Cluster>,
    to: &'w Arc<Published>,
    retry: Duration,
    tasks: &'w mut JoinSet<()>,
}

impl Reflecting<'_> {
    /// Starts a reflector for a kind in each watched namespace. The selector of `role`, if any,
    /// restricts the objects.
    fn follow<T: Resource>(&mut self, store: &Arc<Store<T>>, role: Option<KubernetesRole>) {
        let everywhere = [String::new()];
        let namespaces = match T::IS_NAMESPACED {
            true => &self.cluster.namespaces[..],
            false => &everywhere,
        };
        let selectors = &self.settings.selectors;
        let selector = selectors
            .iter()
            .find(|selector| Some(selector.role) == role);
        for namespace in namespaces {
            let reflector = Reflector {
                cluster: self.cluster.clone(),
                namespace: namespace.clone(),
                label: selector.map_or(String::new(), |s| s.label.clone()),
                field: selector.map_or(String::new(), |s| s.field.clone()),
                store: store.clone(),
                part: store.add_part(),
                to: self.to.clone(),
                retry: self.retry,
            };
            let run: BoxFuture<'static, ()> = Box::pin(reflector.run());
            self.tasks.spawn(run);
        }
    }
}

impl World {
    /// Creates empty stores. Each change of a store notifies `changed`.
    pub(super) fn new(settings: &KubernetesSettings, changed: Arc<Notify>) -> Self {
        Self {
            settings: settings.clone(),
            pods: Arc::new(Store::new(changed.clone())),
            nodes: Arc::new(Store::new(changed.clone())),
            namespaces: Arc::new(Store::new(changed.clone())),
            services: Arc::new(Store::new(changed.clone())),
            endpoints: Arc::new(Store::new(changed.clone())),
            slices: Arc::new(Store::new(changed.clone())),
            ingresses: Arc::new(Store::new(changed.clone())),
            replica_sets: Arc::new(Store::new(changed.clone())),
            jobs: Arc::new(Store::new(changed)),
        }
    }

    /// Starts the reflectors of all kinds that the role needs, as tasks in `tasks`.
    pub(super) fn reflect(
        &self,
        cluster: &Arc<Cluster>,
        to: &Arc<Published>,
        retry: Duration,
        tasks: &mut JoinSet<()>,
    ) {
        let mut reflecting = Reflecting {
            settings: &self.settings,
            cluster,
            to,
            retry,
            tasks,
        };
        let role = self.settings.role;
        let attached = self.settings.attached;
        match role {
            KubernetesRole::Node => {
                reflecting.follow(&self.nodes, Some(role));
                return;
            }
            KubernetesRole::Pod => reflecting.follow(&self.pods, Some(role)),
            KubernetesRole::Service => reflecting.follow(&self.services, Some(role)),
            KubernetesRole::Ingress => reflecting.follow(&self.ingresses, Some(role)),
            KubernetesRole::Endpoints => reflecting.follow(&self.endpoints, Some(role)),
            KubernetesRole::EndpointSlice => reflecting.follow(&self.slices, Some(role)),
        }
        if attached.namespace {
            reflecting.follow(&self.namespaces, None);
        }
        let leads_to_pods = self.leads_to_pods();
        if leads_to_pods {
            reflecting.follow(&self.services, Some(KubernetesRole::Service));
            reflecting.follow(&self.pods, Some(KubernetesRole::Pod));
        }
        if !leads_to_pods && role != KubernetesRole::Pod {
            return;
        }
        if attached.node {
            reflecting.follow(&self.nodes, Some(KubernetesRole::Node));
        }
        if attached.deployment {
            reflecting.follow(&self.replica_sets, None);
        }
        if attached.job || attached.cronjob {
            reflecting.follow(&self.jobs, None);
        }
    }

    fn leads_to_pods(&self) -> bool {
        let role = self.settings.role;
        matches!(
            role,
            KubernetesRole::Endpoints | KubernetesRole::EndpointSlice
        )
    }

    /// Returns whether replica sets and jobs have been listed. The first target list waits only a
    /// short time for them, because the API may not permit reading them.
    pub(super) fn has_owners(&self) -> bool {
        self.replica_sets.is_listed() && self.jobs.is_listed()
    }

    /// Returns whether all objects except replica sets and jobs have been listed at least once.
    pub(super) fn is_listed(&self) -> bool {
        self.pods.is_listed()
            && self.nodes.is_listed()
            && self.namespaces.is_listed()
            && self.services.is_listed()
            && self.endpoints.is_listed()
            && self.slices.is_listed()
            && self.ingresses.is_listed()
    }

    /// Builds the targets of the role from the current objects.
    pub(super) fn groups(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        let namespaces = self.namespaces.hold();
        let more = |namespace: &str| namespace_labels(&namespaces, namespace);
        match self.settings.role {
            KubernetesRole::Node => {
                groups.extend(self.nodes.hold().iter().filter_map(roles::node));
            }
            KubernetesRole::Pod => self.pods(&more, &mut groups),
            KubernetesRole::Service => {
                for service in self.services.hold().iter() {
                    let more = more(&service.metadata.namespace);
                    roles::service(service, &more, &mut groups);
                }
            }
            KubernetesRole::Ingress => {
                for ingress in self.ingresses.hold().iter() {
                    let more = more(&ingress.metadata.namespace);
                    roles::ingress(ingress, &more, &mut groups);
                }
            }
            KubernetesRole::Endpoints => {
                let around = self.around();
                for one in self.endpoints.hold().iter() {
                    endpoints(one, &around, &more(&one.metadata.namespace), &mut groups);
                }
            }
            KubernetesRole::EndpointSlice => {
                let around = self.around();
                for one in self.slices.hold().iter() {
                    slice(one, &around, &more(&one.metadata.namespace), &mut groups);
                }
            }
        }
        groups
    }

    fn pods(&self, more: &impl Fn(&str) -> Meta, groups: &mut Vec<Group>) {
        let (nodes, owners) = (self.nodes.hold(), self.owners());
        for pod in self.pods.hold().iter() {
            if pod.status.pod_ip.is_empty() {
                continue;
            }
            let mut more = more(&pod.metadata.namespace);
            if self.settings.attached.node {
                let name = &pod.spec.node_name;
                // Pods on nodes that the node selector excludes have no target.
                if nodes.get(name).is_none() {
                    continue;
                }
                more.merge(&node_labels(&nodes, name));
            }
            pods::targets(pod, &owners, &more, groups);
        }
    }

    fn owners(&self) -> Owners<'_> {
        Owners {
            attached: self.settings.attached,
            replica_sets: self.replica_sets.hold(),
            jobs: self.jobs.hold(),
        }
    }

    fn around(&self) -> Around<'_> {
        let has_nodes = self.settings.attached.node;
        Around {
            services: self.services.hold(),
            pods: self.pods.hold(),
            nodes: has_nodes.then(|| self.nodes.hold()),
            owners: self.owners(),
        }
    }
}

fn namespace_labels(namespaces: &Held<'_, Namespace>, name: &str) -> Meta {
    let mut meta = none();
    if let Some(namespace) = namespaces.get(name) {
        set_maps(&mut meta, "namespace", &namespace.metadata);
    }
    meta
}
