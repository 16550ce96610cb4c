//! Known objects of one kind, with one part per watched namespace.

use super::objects::KubernetesResource;
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// Objects of one kind, shared by reflectors and the discovery. Each change notifies the discovery.
#[derive(Debug)]
pub(super) struct KubernetesStore<T> {
    parts: Mutex<Vec<KubernetesStorePart<T>>>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct KubernetesStorePart<T> {
    objects: BTreeMap<String, T>,
    is_listed: bool,
}

/// Read access to the objects, which do not change while this guard exists.
pub(super) struct KubernetesStoreGuard<'s, T>(MutexGuard<'s, Vec<KubernetesStorePart<T>>>);

impl<T: KubernetesResource> KubernetesStore<T> {
    /// Creates a store without parts, which counts as listed. Each change notifies `changed`.
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        Self {
            parts: Mutex::default(),
            changed,
        }
    }

    /// Adds an empty part for one reflector and returns its index.
    pub(super) fn add_part(&self) -> usize {
        let mut parts = lock(&self.parts);
        parts.push(KubernetesStorePart {
            objects: BTreeMap::new(),
            is_listed: false,
        });
        parts.len() - 1
    }

    /// Returns whether every part has been listed at least once.
    pub(super) fn is_listed(&self) -> bool {
        lock(&self.parts).iter().all(|part| part.is_listed)
    }

    /// Replaces all objects of a part and marks it as listed.
    pub(super) fn replace_part(&self, part: usize, objects: Vec<T>) {
        let keyed = objects.into_iter().map(|o| (o.metadata().object_key(), o));
        let objects = keyed.collect();
        self.change_part(part, |part| {
            part.objects = objects;
            part.is_listed = true;
        });
    }

    /// Adds an object to a part, or replaces the object with the same key.
    pub(super) fn set_object(&self, part: usize, object: T) {
        let key = object.metadata().object_key();
        self.change_part(part, |part| {
            part.objects.insert(key, object);
        });
    }

    /// Removes the object with this key from a part, if it exists.
    pub(super) fn remove_object(&self, part: usize, key: &str) {
        self.change_part(part, |part| {
            part.objects.remove(key);
        });
    }

    fn change_part(&self, part: usize, change: impl FnOnce(&mut KubernetesStorePart<T>)) {
        if let Some(part) = lock(&self.parts).get_mut(part) {
            change(part);
        }
        self.changed.notify_one();
    }

    /// Locks the store for reading. Writers wait until the guard is dropped.
    pub(super) fn lock_for_reading(&self) -> KubernetesStoreGuard<'_, T> {
        KubernetesStoreGuard(lock(&self.parts))
    }
}

impl<T> KubernetesStoreGuard<'_, T> {
    /// Returns the objects of all parts.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|part| part.objects.values())
    }

    /// Returns the object with this key from any part.
    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.0.iter().find_map(|part| part.objects.get(key))
    }
}
