//! The labels of a point: what its attributes become, and what is laid over them.
//!
//! ```text
//! attributes of the point -- sorted, translated --> labels --.
//! promoted attributes of the resource (where there is none) --+--> sorted label set
//! job, instance, scope, type and unit, name (in any case)   --'
//! ```
//!
//! What is laid over is the same for all points of a metric and is put together once for it.

use super::label_names::LabelNames;
use super::text::{Made, Text};
use super::translation::Translation;
use super::trouble::Trouble;

/// A label on its way to a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'m> {
    /// The name.
    pub name: Text<'m>,
    /// The value.
    pub value: Text<'m>,
}

/// A label that is laid over those of a point.
#[derive(Clone, Copy, Debug)]
struct Overlaid<'m> {
    label: Label<'m>,
    /// Whether it takes the place of a label of the point; it does even if it is empty, and then
    /// there is none.
    is_stronger: bool,
}

/// Labels that are laid over those of points: sorted by name, each once.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay<'m>(Vec<Overlaid<'m>>);

impl<'m> Overlay<'m> {
    /// Adds a label that gives way to one of a point.
    pub(super) fn offer(&mut self, name: Text<'m>, value: Text<'m>, made: &Made) {
        self.put(name, value, false, made);
    }

    /// Adds a label that takes the place of others of its name.
    pub(super) fn set(&mut self, name: Text<'m>, value: Text<'m>, made: &Made) {
        self.put(name, value, true, made);
    }

    fn put(&mut self, name: Text<'m>, value: Text<'m>, is_stronger: bool, made: &Made) {
        let new = Overlaid {
            label: Label { name, value },
            is_stronger,
        };
        let wanted = made.get(name);
        let found = (self.0).binary_search_by(|known| made.get(known.label.name).cmp(wanted));
        match found {
            Ok(at) => {
                if let Some(known) = self.0.get_mut(at) {
                    *known = new;
                }
            }
            Err(at) => self.0.insert(at, new),
        }
    }

    /// Becomes a copy of `other`, and keeps its memory.
    pub(super) fn copy(&mut self, other: &Overlay<'m>) {
        self.0.clone_from(&other.0);
    }
}

/// The labels of the point under way. Its memory is used again.
#[derive(Debug, Default)]
pub(super) struct LabelSet<'m> {
    /// Attributes by key, as they came.
    attributes: Vec<Label<'m>>,
    /// What became of them.
    own: Vec<Label<'m>>,
    /// All labels, sorted by name.
    all: Vec<Label<'m>>,
}

impl<'m> LabelSet<'m> {
    /// Begins a point.
    pub(super) fn clear(&mut self) {
        self.attributes.clear();
    }

    /// Adds an attribute.
    pub(super) fn push(&mut self, key: &'m [u8], value: Text<'m>) {
        let name = Text::Message(key);
        self.attributes.push(Label { name, value });
    }

    /// Makes the labels of the attributes and of what is laid over them.
    pub(super) fn finish(
        &mut self,
        (names, translation): (&mut LabelNames<'m>, &Translation),
        overlay: &Overlay<'m>,
        made: &mut Made,
    ) -> Result<(), Trouble> {
        self.attributes
            .sort_by(|a, b| made.get(a.name).cmp(made.get(b.name)));
        match translation.strategy.escapes() {
            true => self.translate(names, translation, made)?,
            false => {
                self.own.clone_from(&self.attributes);
            }
        }
        self.own.retain(|label| !label.value.is_empty());
        self.merge(overlay, made);
        Ok(())
    }

    /// Translates the keys. The values of those that become one are joined, in order of the keys.
    fn translate(
        &mut self,
        names: &mut LabelNames<'m>,
        translation: &Translation,
        made: &mut Made,
    ) -> Result<(), Trouble> {
        self.own.clear();
        let mut is_sorted = true;
        for attribute in &self.attributes {
            let Text::Message(key) = attribute.name else {
                continue;
            };
            let name = names.get(key, translation, made)?;
            if let Some(before) = self.own.last() {
                is_sorted &= made.get(before.name) < made.get(name);
            }
            self.own.push(Label {
                name,
                value: attribute.value,
            });
        }
        if !is_sorted {
            self.own
                .sort_by(|a, b| made.get(a.name).cmp(made.get(b.name)));
            self.join(made);
        }
        Ok(())
    }

    /// Joins the values of labels of one name.
    #[cold]
    fn join(&mut self, made: &mut Made) {
        let mut joined: Vec<Label<'m>> = Vec::with_capacity(self.own.len());
        for label in &self.own {
            let last = joined
                .last_mut()
                .filter(|last| made.get(last.name) == made.get(label.name));
            match last {
                Some(last) if last.value.is_empty() => last.value = label.value,
                Some(last) => {
                    let text = [made.get(last.value), b";", made.get(label.value)].concat();
                    last.value = made.push(&text);
                }
                None => joined.push(*label),
            }
        }
        self.own = joined;
    }

    fn merge(&mut self, overlay: &Overlay<'m>, made: &Made) {
        self.all.clear();
        let mut own = self.own.iter().peekable();
        for over in &overlay.0 {
            let name = made.get(over.label.name);
            while let Some(label) = own.next_if(|own| made.get(own.name) < name) {
                self.all.push(*label);
            }
            let mut is_taken = false;
            while let Some(label) = own.next_if(|own| made.get(own.name) == name) {
                if !over.is_stronger {
                    self.all.push(*label);
                    is_taken = true;
                }
            }
            if !is_taken && !over.label.value.is_empty() {
                self.all.push(over.label);
            }
        }
        self.all.extend(own);
    }

    /// Sets a label of all; where it stands then.
    pub(super) fn set(&mut self, name: &'static str, value: Text<'m>, made: &Made) -> usize {
        let name = name.as_bytes();
        let label = Label {
            name: Text::Message(name),
            value,
        };
        let at = self
            .all
            .partition_point(|label| made.get(label.name) < name);
        match self.all.get_mut(at) {
            Some(known) if made.get(known.name) == name => *known = label,
            _ => self.all.insert(at, label),
        }
        at
    }

    /// Sets the value of the label that stands at `at`.
    pub(super) fn set_at(&mut self, at: usize, value: Text<'m>) {
        if let Some(label) = self.all.get_mut(at) {
            label.value = value;
        }
    }

    /// The labels, sorted by name, without empty ones.
    pub(super) fn all(&self) -> &[Label<'m>] {
        &self.all
    }
}
