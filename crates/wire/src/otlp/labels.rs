//! The labels of a point: what its attributes become, and what is laid over them.
//!
//! ```text
//! attributes of the point -- sorted, translated --> labels --.
//! promoted attributes of the resource (where there is none) --+--> sorted label set
//! job, instance, scope, type and unit, name (in any case)   --'
//! ```
//!
//! What is laid over is the same for all points of a metric and is put together once for it; the
//! bytes that each label of it is in a key are made once for the resource, the scope or the metric
//! that it belongs to. Labels say where they come from, so that [`super::order`] can put those of
//! another point in the same order.

use super::label_names::LabelNames;
use super::text::{Made, Text};
use super::translation::Translation;
use super::trouble::Trouble;

/// What a label takes in a key beside name and value, at most.
pub(super) const LABEL_FRAME_BYTES: usize = 12;

/// Where a label of a point comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The attribute with this number.
    Attribute(u32),
    /// The label that is laid over with this number.
    Overlay(u32),
    /// Several attributes, or the kind of point.
    Other,
}

/// How much of the bytes that a label is in a key is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form {
    /// Nothing.
    Plain,
    /// What stands before the value, without the label's length.
    Begun(Text<'static>),
    /// Everything.
    Whole(Text<'static>),
}

/// A label on its way to a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label<'m> {
    /// The name.
    pub name: Text<'m>,
    /// The value.
    pub value: Text<'m>,
    /// Where it comes from.
    pub source: Source,
    /// What is made of it.
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

/// A label that is laid over those of a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Overlaid<'m> {
    /// The label; its source says nothing.
    pub label: Label<'m>,
    /// Whether it takes the place of a label of the point; it does even if it is empty, and then
    /// there is none.
    pub is_stronger: bool,
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

    /// The labels, sorted by name.
    pub(super) fn labels(&self) -> &[Overlaid<'m>] {
        &self.0
    }

    /// What the bytes of labels that have none yet take.
    pub(super) fn plain_bytes(&self) -> usize {
        let labels = self.0.iter().map(|over| &over.label);
        let plain = labels.filter(|label| matches!(label.form, Form::Plain));
        plain
            .map(|label| LABEL_FRAME_BYTES + label.name.len() + label.value.len())
            .sum()
    }

    /// Makes the bytes of labels that have none yet.
    pub(super) fn form(&mut self, made: &mut Made) {
        for Overlaid { label, .. } in &mut self.0 {
            if let Form::Plain = label.form {
                label.form = Form::Whole(made.label(label.name, label.value));
            }
        }
    }

    /// Becomes a copy of `other`, and keeps its memory.
    pub(super) fn copy(&mut self, other: &Overlay<'m>) {
        self.0.clone_from(&other.0);
    }
}

/// Key and value of an attribute.
pub(super) type Pair<'m> = (&'m [u8], Text<'m>);

/// The labels of the point under way. Its memory is used again.
#[derive(Debug, Default)]
pub(super) struct LabelSet<'m> {
    /// Keys and values of attributes, as they came.
    attributes: Vec<Pair<'m>>,
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
        self.attributes.push((key, value));
    }

    /// The attributes, as they came.
    pub(super) fn attributes(&self) -> &[Pair<'m>] {
        &self.attributes
    }

    /// The attributes, as they came, and the place of the labels: sorted, without empty ones.
    pub(super) fn parts(&mut self) -> (&[Pair<'m>], &mut Vec<Label<'m>>) {
        (&self.attributes, &mut self.all)
    }

    /// Makes the labels of the attributes and of what is laid over them.
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

    /// Translates the keys. The values of those that become one are joined, in order of the keys.
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

    /// Joins the values of labels of one name.
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

    /// Sets a label of all; where it stands then.
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

    /// Sets the value of the label that stands at `at`.
    pub(super) fn set_at(&mut self, at: usize, value: Text<'m>) {
        if let Some(label) = self.all.get_mut(at) {
            *label = Label::plain(label.name, value, Source::Other);
        }
    }

    /// The labels, sorted by name, without empty ones.
    pub(super) fn all(&self) -> &[Label<'m>] {
        &self.all
    }
}
