//! The labels of a point: those of its attributes, and an overlay that all points of a metric
//! share.
//!
//! ```text
//! attributes of the point -- sorted, translated --> labels ---------.
//! promoted attributes of the resource (unless the point has them) --+--> sorted label set
//! job, instance, scope, type and unit, name (always) ---------------'
//! ```
//!
//! The overlay is computed once for each metric, and the encoded bytes of each of its labels once
//! for the resource, scope or metric that the label belongs to. Labels record their source, so that
//! [`super::order`] can arrange the labels of another point in the same order.

use super::label_names::LabelNames;
use super::text::{Made, Text};
use super::translation::Translation;
use super::trouble::Trouble;

/// Largest number of bytes that the encoding of a label in a key adds to its name and value.
pub(super) const LABEL_FRAME_BYTES: usize = 12;

/// The source of a label of a point, from which [`super::order`] derives a reusable order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The attribute with this index in the point.
    Attribute(u32),
    /// The label of the overlay with this index.
    Overlay(u32),
    /// Several attributes, or the kind of the point.
    Other,
}

/// The part of a label's encoding that exists already, so that keys can be assembled by copying.
/// Overlay labels are always complete after [`Overlay::form`].
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// No part of it: the label is encoded when the key is written.
    Plain,
    /// The bytes before the value, without the length of the label.
    Begun(Text<'static>),
    /// The complete encoding, which keys copy.
    Whole(Text<'static>),
}

/// A label of a point that will be part of a series key: name and value are slices of the message
/// or generated texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'m> {
    /// Name of the label.
    pub name: Text<'m>,
    /// Value of the label.
    pub value: Text<'m>,
    /// The source of the label, from which orders are derived.
    pub source: Source,
    /// The existing part of its encoding in a key.
    pub form: Form,
}

impl<'m> Label<'m> {
    fn plain(name: Text<'m>, value: Text<'m>, source: Source) -> Self {
        Self {
            name,
            value,
            source,
            form: Form::Plain,
        }
    }
}

/// A label of the overlay, with its precedence over labels of the point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overlaid<'m> {
    /// The label, whose source is not used.
    pub label: Label<'m>,
    /// True if it replaces a label of the point with the same name. An empty one then removes that
    /// label.
    pub is_stronger: bool,
}

/// Labels that are merged into those of each point: sorted by name, without duplicates. Computed
/// once for each metric.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay<'m>(Vec<Overlaid<'m>>);

impl<'m> Overlay<'m> {
    /// Adds a label that is used only if the point has no label of that name.
    pub(super) fn offer(&mut self, name: Text<'m>, value: Text<'m>, made: &Made) {
        self.put(name, value, false, made);
    }

    /// Adds a label that replaces others of its name, in the overlay and in points.
    pub(super) fn set(&mut self, name: Text<'m>, value: Text<'m>, made: &Made) {
        self.put(name, value, true, made);
    }

    fn put(&mut self, name: Text<'m>, value: Text<'m>, is_stronger: bool, made: &Made) {
        let new = Overlaid {
            label: Label::plain(name, value, Source::Other),
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

    /// Returns the labels of the overlay, sorted by name, with their precedence.
    pub(super) fn labels(&self) -> &[Overlaid<'m>] {
        &self.0
    }

    /// Returns the memory in bytes that [`Self::form`] will need, to be reserved before.
    pub(super) fn plain_bytes(&self) -> usize {
        let labels = self.0.iter().map(|over| &over.label);
        let plain = labels.filter(|label| matches!(label.form, Form::Plain));
        plain
            .map(|label| LABEL_FRAME_BYTES + label.name.len() + label.value.len())
            .sum()
    }

    /// Encodes the labels that have no encoding yet, so that each point only copies them.
    pub(super) fn form(&mut self, made: &mut Made) {
        for Overlaid { label, .. } in &mut self.0 {
            if let Form::Plain = label.form {
                label.form = Form::Whole(made.label(label.name, label.value));
            }
        }
    }

    /// Becomes a copy of `other` and reuses its own memory.
    pub(super) fn copy(&mut self, other: &Overlay<'m>) {
        self.0.clone_from(&other.0);
    }
}

/// Key and value of an attribute.
pub(super) type Pair<'m> = (&'m [u8], Text<'m>);

/// The labels of the current point: first its attributes, then the resulting label set. The memory
/// is reused for the next point.
#[derive(Debug, Default)]
pub(super) struct LabelSet<'m> {
    /// Keys and values of the attributes, in message order.
    attributes: Vec<Pair<'m>>,
    /// The labels that result from the attributes.
    own: Vec<Label<'m>>,
    /// All labels including the overlay, sorted by name.
    all: Vec<Label<'m>>,
}

impl<'m> LabelSet<'m> {
    /// Removes the attributes of the previous point.
    pub(super) fn clear(&mut self) {
        self.attributes.clear();
    }

    /// Adds an attribute of the current point; keys may repeat and may be in any order.
    pub(super) fn push(&mut self, key: &'m [u8], value: Text<'m>) {
        self.attributes.push((key, value));
    }

    /// Returns the attributes in message order. Their order identifies a cached order.
    pub(super) fn attributes(&self) -> &[Pair<'m>] {
        &self.attributes
    }

    /// Returns the attributes in message order, and the list of labels to be filled: sorted,
    /// without empty ones.
    pub(super) fn parts(&mut self) -> (&[Pair<'m>], &mut Vec<Label<'m>>) {
        (&self.attributes, &mut self.all)
    }

    /// Computes the labels from the attributes and the overlay; fails if a key cannot be translated
    /// to a label name.
    pub(super) fn finish(
        &mut self,
        (names, translation): (&mut LabelNames<'m>, &Translation),
        overlay: &Overlay<'m>,
        made: &mut Made,
    ) -> Result<(), Trouble> {
        self.own.clear();
        for (number, (key, value)) in self.attributes.iter().enumerate() {
            let source = Source::Attribute(number as u32);
            let name = Text::Message(key);
            self.own.push(Label::plain(name, *value, source));
        }
        self.own
            .sort_by(|a, b| made.get(a.name).cmp(made.get(b.name)));
        if translation.strategy.escapes() {
            self.translate(names, translation, made)?;
        }
        self.own.retain(|label| !label.value.is_empty());
        self.merge(overlay, made);
        Ok(())
    }

    /// Translates the keys to label names. Values of keys that translate to the same name are
    /// joined, in order of the keys.
    fn translate(
        &mut self,
        names: &mut LabelNames<'m>,
        translation: &Translation,
        made: &mut Made,
    ) -> Result<(), Trouble> {
        let (mut is_sorted, mut before) = (true, None);
        for label in &mut self.own {
            let Text::Message(key) = label.name else {
                continue;
            };
            label.name = names.get(key, translation, made)?;
            let name = made.get(label.name);
            is_sorted &= before.is_none_or(|before| made.get(before) < name);
            before = Some(label.name);
        }
        if !is_sorted {
            self.own
                .sort_by(|a, b| made.get(a.name).cmp(made.get(b.name)));
            self.join(made);
        }
        Ok(())
    }

    /// Joins the values of adjacent labels with equal names by semicolons, as upstream does.
    #[cold]
    fn join(&mut self, made: &mut Made) {
        let mut joined: Vec<Label<'m>> = Vec::with_capacity(self.own.len());
        for label in &self.own {
            let last = joined
                .last_mut()
                .filter(|last| made.get(last.name) == made.get(label.name));
            match last {
                Some(last) => {
                    last.source = Source::Other;
                    if last.value.is_empty() {
                        last.value = label.value;
                        continue;
                    }
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
        for (number, over) in overlay.0.iter().enumerate() {
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
                let source = Source::Overlay(number as u32);
                self.all.push(Label {
                    source,
                    ..over.label
                });
            }
        }
        self.all.extend(own);
    }

    /// Sets a label in the complete list, in sorted position, and returns its index.
    pub(super) fn set(&mut self, name: &'static str, value: Text<'m>, made: &Made) -> usize {
        let name = name.as_bytes();
        let label = Label::plain(Text::Message(name), value, Source::Other);
        let at = self
            .all
            .partition_point(|label| made.get(label.name) < name);
        match self.all.get_mut(at) {
            Some(known) if made.get(known.name) == name => *known = label,
            _ => self.all.insert(at, label),
        }
        at
    }

    /// Sets the value of the label at index `at`.
    pub(super) fn set_at(&mut self, at: usize, value: Text<'m>) {
        if let Some(label) = self.all.get_mut(at) {
            *label = Label::plain(label.name, value, Source::Other);
        }
    }

    /// Returns the labels including the overlay, sorted by name and without empty ones.
    pub(super) fn all(&self) -> &[Label<'m>] {
        &self.all
    }
}
