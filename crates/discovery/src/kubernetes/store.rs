//! The objects of one kind that are known, in one part for each namespace that is watched.

use super::objects::Resource;
use firn_model::sync::lock;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;

/// Objects of one kind; each change is told.
#[derive(Debug)]
pub(super) struct Store<T> {
    parts: Mutex<Vec<Part<T>>>,
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Part<T> {
    objects: BTreeMap<String, T>,
    is_listed: bool,
}

/// The objects, which stay as they are while this is held.
pub(super) struct Held<'s, T>(MutexGuard<'s, Vec<Part<T>>>);

impl<T: Resource> Store<T> {
    /// No part yet; `changed` is told of each change.
    pub(super) fn new(changed: Arc<Notify>) -> Self {
        Self {
            parts: Mutex::default(),
            changed,
        }
    }

    /// Adds a part, and returns its number.
    pub(super) fn add_part(&self) -> usize {
        let mut parts = lock(&self.parts);
        parts.push(Part {
            objects: BTreeMap::new(),
            is_listed: false,
        });
        parts.len() - 1
    }

    /// Whether each part was listed once.
    pub(super) fn is_listed(&self) -> bool {
        lock(&self.parts).iter().all(|part| part.is_listed)
    }

    /// Replaces all objects of a part.
    pub(super) fn replace(&self, part: usize, objects: Vec<T>) {
        let keyed = objects.into_iter().map(|o| (o.metadata().key(), o));
        let objects = keyed.collect();
        self.change(part, |part| {
            part.objects = objects;
            part.is_listed = true;
        });
    }

    /// Adds or replaces an object.
    pub(super) fn set(&self, part: usize, object: T) {
        let key = object.metadata().key();
        self.change(part, |part| {
            part.objects.insert(key, object);
        });
    }

    /// Removes an object.
    pub(super) fn remove(&self, part: usize, key: &str) {
        self.change(part, |part| {
            part.objects.remove(key);
        });
    }

    fn change(&self, part: usize, change: impl FnOnce(&mut Part<T>)) {
        if let Some(part) = lock(&self.parts).get_mut(part) {
            change(part);
        }
        self.changed.notify_one();
    }

    /// The objects, to be looked at.
    pub(super) fn hold(&self) -> Held<'_, T> {
        Held(lock(&self.parts))
    }
}

impl<T> Held<'_, T> {
    /// All objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|part| part.objects.values())
    }

    /// The object with this key.
    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.0.iter().find_map(|part| part.objects.get(key))
    }
}
