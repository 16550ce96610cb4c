//! All stores of a cluster that a role needs, and the targets that are built from them.

use super::access::KubernetesCluster;
use super::endpoints::{EndpointRelatedObjects, push_endpoints_targets, push_slice_targets};
use super::labels::{new_meta_labels, set_maps};
use super::objects::{
    EndpointSlice, Ingress, KubernetesEndpoints, KubernetesJob, KubernetesNamespace,
    KubernetesNode, KubernetesPod, KubernetesResource, KubernetesService, ReplicaSet,
};
use super::pods::{self, PodOwners, find_node_labels};
use super::reflector::KubernetesReflector;
use super::roles;
use super::settings::{KubernetesRole, KubernetesSettings};
use super::store::{KubernetesStore, KubernetesStoreGuard};
use crate::discover::BoxFuture;
use crate::group::TargetGroup;
use crate::meta::MetaLabels;
use crate::published::PublishedTargets;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Stores of a cluster's objects, one per kind. Stores of kinds that the role does not need remain
/// empty.
pub(super) struct KubernetesObjectStores {
    settings: KubernetesSettings,
    pods: Arc<KubernetesStore<KubernetesPod>>,
    nodes: Arc<KubernetesStore<KubernetesNode>>,
    namespaces: Arc<KubernetesStore<KubernetesNamespace>>,
    services: Arc<KubernetesStore<KubernetesService>>,
    endpoints: Arc<KubernetesStore<KubernetesEndpoints>>,
    slices: Arc<KubernetesStore<EndpointSlice>>,
    ingresses: Arc<KubernetesStore<Ingress>>,
    replica_sets: Arc<KubernetesStore<ReplicaSet>>,
    jobs: Arc<KubernetesStore<KubernetesJob>>,
}

/// Parameters that are common to the reflectors of a cluster while they are started.
struct ReflectorStarter<'w> {
    settings: &'w KubernetesSettings,
    cluster: &'w Arc<KubernetesCluster>,
    to: &'w Arc<PublishedTargets>,
    retry: Duration,
    tasks: &'w mut JoinSet<()>,
}

impl ReflectorStarter<'_> {
    /// Starts a reflector for a kind in each watched namespace. The selector of `role`, if any,
    /// restricts the objects.
    fn start_reflectors<T: KubernetesResource>(
        &mut self,
        store: &Arc<KubernetesStore<T>>,
        role: Option<KubernetesRole>,
    ) {
        let everywhere = [String::new()];
        let namespaces = if T::IS_NAMESPACED {
            &self.cluster.namespaces[..]
        } else {
            &everywhere
        };
        let selectors = &self.settings.selectors;
        let selector = selectors
            .iter()
            .find(|selector| Some(selector.role) == role);
        for namespace in namespaces {
            let reflector = KubernetesReflector {
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

impl KubernetesObjectStores {
    /// Creates empty stores. Each change of a store notifies `changed`.
    pub(super) fn new(settings: &KubernetesSettings, changed: Arc<Notify>) -> Self {
        Self {
            settings: settings.clone(),
            pods: Arc::new(KubernetesStore::new(changed.clone())),
            nodes: Arc::new(KubernetesStore::new(changed.clone())),
            namespaces: Arc::new(KubernetesStore::new(changed.clone())),
            services: Arc::new(KubernetesStore::new(changed.clone())),
            endpoints: Arc::new(KubernetesStore::new(changed.clone())),
            slices: Arc::new(KubernetesStore::new(changed.clone())),
            ingresses: Arc::new(KubernetesStore::new(changed.clone())),
            replica_sets: Arc::new(KubernetesStore::new(changed.clone())),
            jobs: Arc::new(KubernetesStore::new(changed)),
        }
    }

    /// Starts the reflectors of all kinds that the role needs, as tasks in `tasks`.
    pub(super) fn start_all_reflectors(
        &self,
        cluster: &Arc<KubernetesCluster>,
        to: &Arc<PublishedTargets>,
        retry: Duration,
        tasks: &mut JoinSet<()>,
    ) {
        let mut reflecting = ReflectorStarter {
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
                reflecting.start_reflectors(&self.nodes, Some(role));
                return;
            }
            KubernetesRole::Pod => reflecting.start_reflectors(&self.pods, Some(role)),
            KubernetesRole::Service => reflecting.start_reflectors(&self.services, Some(role)),
            KubernetesRole::Ingress => reflecting.start_reflectors(&self.ingresses, Some(role)),
            KubernetesRole::Endpoints => reflecting.start_reflectors(&self.endpoints, Some(role)),
            KubernetesRole::EndpointSlice => reflecting.start_reflectors(&self.slices, Some(role)),
        }
        if attached.namespace {
            reflecting.start_reflectors(&self.namespaces, None);
        }
        let leads_to_pods = self.needs_pods();
        if leads_to_pods {
            reflecting.start_reflectors(&self.services, Some(KubernetesRole::Service));
            reflecting.start_reflectors(&self.pods, Some(KubernetesRole::Pod));
        }
        if !leads_to_pods && role != KubernetesRole::Pod {
            return;
        }
        if attached.node {
            reflecting.start_reflectors(&self.nodes, Some(KubernetesRole::Node));
        }
        if attached.deployment {
            reflecting.start_reflectors(&self.replica_sets, None);
        }
        if attached.job || attached.cronjob {
            reflecting.start_reflectors(&self.jobs, None);
        }
    }

    fn needs_pods(&self) -> bool {
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
    pub(super) fn build_groups(&self) -> Vec<TargetGroup> {
        let mut groups = Vec::new();
        let namespaces = self.namespaces.lock_for_reading();
        let more = |namespace: &str| find_namespace_labels(&namespaces, namespace);
        match self.settings.role {
            KubernetesRole::Node => {
                groups.extend(
                    self.nodes
                        .lock_for_reading()
                        .iter()
                        .filter_map(roles::build_node_target),
                );
            }
            KubernetesRole::Pod => self.build_pod_groups(&more, &mut groups),
            KubernetesRole::Service => {
                for service in self.services.lock_for_reading().iter() {
                    let more = more(&service.metadata.namespace);
                    roles::push_service_targets(service, &more, &mut groups);
                }
            }
            KubernetesRole::Ingress => {
                for ingress in self.ingresses.lock_for_reading().iter() {
                    let more = more(&ingress.metadata.namespace);
                    roles::push_ingress_targets(ingress, &more, &mut groups);
                }
            }
            KubernetesRole::Endpoints => {
                let around = self.lock_related_objects();
                for one in self.endpoints.lock_for_reading().iter() {
                    push_endpoints_targets(
                        one,
                        &around,
                        &more(&one.metadata.namespace),
                        &mut groups,
                    );
                }
            }
            KubernetesRole::EndpointSlice => {
                let around = self.lock_related_objects();
                for one in self.slices.lock_for_reading().iter() {
                    push_slice_targets(one, &around, &more(&one.metadata.namespace), &mut groups);
                }
            }
        }
        groups
    }

    fn build_pod_groups(&self, more: &impl Fn(&str) -> MetaLabels, groups: &mut Vec<TargetGroup>) {
        let (nodes, owners) = (self.nodes.lock_for_reading(), self.lock_owners());
        for pod in self.pods.lock_for_reading().iter() {
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
                more.merge(&find_node_labels(&nodes, name));
            }
            pods::push_pod_targets(pod, &owners, &more, groups);
        }
    }

    fn lock_owners(&self) -> PodOwners<'_> {
        PodOwners {
            attached: self.settings.attached,
            replica_sets: self.replica_sets.lock_for_reading(),
            jobs: self.jobs.lock_for_reading(),
        }
    }

    fn lock_related_objects(&self) -> EndpointRelatedObjects<'_> {
        let has_nodes = self.settings.attached.node;
        EndpointRelatedObjects {
            services: self.services.lock_for_reading(),
            pods: self.pods.lock_for_reading(),
            nodes: has_nodes.then(|| self.nodes.lock_for_reading()),
            owners: self.lock_owners(),
        }
    }
}

fn find_namespace_labels(
    namespaces: &KubernetesStoreGuard<'_, KubernetesNamespace>,
    name: &str,
) -> MetaLabels {
    let mut meta = new_meta_labels();
    if let Some(namespace) = namespaces.get(name) {
        set_maps(&mut meta, "namespace", &namespace.metadata);
    }
    meta
}
