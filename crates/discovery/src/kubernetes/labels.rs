//! Labels that each kind of Kubernetes object contributes to targets.

use super::objects::{ObjectMeta, Service};
use crate::meta::{Meta, sanitize};

/// Prefix of the names of all Kubernetes labels.
const PREFIX: &str = "kubernetes";

/// Creates an empty set of labels whose names begin with `__meta_kubernetes_`.
pub(super) fn none() -> Meta {
    Meta::new(PREFIX)
}

/// Creates the labels of a target in `namespace`, which contain only the namespace.
pub(super) fn in_namespace(namespace: &str) -> Meta {
    let mut meta = none();
    meta.set("namespace", namespace);
    meta
}

/// Adds the name, labels and annotations of an object of `kind`.
pub(super) fn set_object(meta: &mut Meta, kind: &str, object: &ObjectMeta) {
    meta.set(&format!("{kind}_name"), &object.name);
    set_maps(meta, kind, object);
}

/// Adds the labels and annotations of an object of `kind`.
pub(super) fn set_maps(meta: &mut Meta, kind: &str, object: &ObjectMeta) {
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
pub(super) fn set_service(meta: &mut Meta, service: &Service) {
    meta.set("namespace", &service.metadata.namespace);
    set_object(meta, "service", &service.metadata);
}
