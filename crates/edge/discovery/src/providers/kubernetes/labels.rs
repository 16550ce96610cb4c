//! Labels that each kind of Kubernetes object contributes to targets.

use super::objects::{KubernetesService, ObjectMeta};
use crate::meta::{MetaLabels, sanitize};

/// Prefix of the names of all Kubernetes labels.
const PREFIX: &str = "kubernetes";

/// Creates an empty set of labels whose names begin with `__meta_kubernetes_`.
pub(super) fn new_meta_labels() -> MetaLabels {
    MetaLabels::new(PREFIX)
}

/// Creates the labels of a target in `namespace`, which contain only the namespace.
pub(super) fn new_in_namespace(namespace: &str) -> MetaLabels {
    let mut meta = new_meta_labels();
    meta.set("namespace", namespace);
    meta
}

/// Adds the name, labels and annotations of an object of `kind`.
pub(super) fn set_object(meta: &mut MetaLabels, kind: &str, object: &ObjectMeta) {
    meta.set(&format!("{kind}_name"), &object.name);
    set_maps(meta, kind, object);
}

/// Adds the labels and annotations of an object of `kind`.
pub(super) fn set_maps(meta: &mut MetaLabels, kind: &str, object: &ObjectMeta) {
    for (what, map) in [
        ("label", &object.labels),
        ("annotation", &object.annotations),
    ] {
        for (key, value) in map {
            let name = sanitize(key);
            meta.set(&format!("{kind}_{what}_{name}"), value);
            meta.set(&format!("{kind}_{what}present_{name}"), "true");
        }
    }
}

/// Adds the namespace, name, labels and annotations of a service.
pub(super) fn set_service(meta: &mut MetaLabels, service: &KubernetesService) {
    meta.set("namespace", &service.metadata.namespace);
    set_object(meta, "service", &service.metadata);
}
