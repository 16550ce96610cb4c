//! What is known of a cluster, as far as a role needs it, and the targets that it comes to.

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

/// The objects of a cluster; kinds that the role does not need have none.
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

/// Starts reflectors.
struct Reflecting<'w> {
    settings: &'w KubernetesSettings,
    cluster: &'w Arc<Cluster>,
    to: &'w Arc<Published>,
    retry: Duration,
    tasks: &'w mut JoinSet<()>,
}

impl Reflecting<'_> {
    /// Follows a kind in all namespaces that are asked for; `role` says which selector counts.
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
    /// Nothing known yet; `changed` is told of each change.
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

    /// Follows what the role needs, by `tasks`.
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

    /// Whether owners of owners are known. The first list waits a moment for them, and no longer:
    /// the API may not let them be seen.
    pub(super) fn has_owners(&self) -> bool {
        self.replica_sets.is_listed() && self.jobs.is_listed()
    }

    /// Whether all else is known that targets are made of.
    pub(super) fn is_listed(&self) -> bool {
        self.pods.is_listed()
            && self.nodes.is_listed()
            && self.namespaces.is_listed()
            && self.services.is_listed()
            && self.endpoints.is_listed()
            && self.slices.is_listed()
            && self.ingresses.is_listed()
    }

    /// The targets of the role.
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
                // A selector of nodes leaves out pods on others.
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
