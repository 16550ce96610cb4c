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

use super::label_names::LabelNameCache;
use super::text::{GeneratedTexts, LabelText};
use super::translation::OtlpTranslation;
use super::trouble::OtlpDecodeError;

/// Largest number of bytes that the encoding of a label in a key adds to its name and value.
pub(super) const LABEL_FRAME_BYTES: usize = 12;

/// The source of a label of a point, from which [`super::order`] derives a reusable order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PointLabelSource {
    /// The attribute with this index in the point.
    Attribute(u32),
    /// The label of the overlay with this index.
    Overlay(u32),
    /// Several attributes, or the kind of the point.
    Other,
}

/// The part of a label's encoding that exists already, so that keys can be assembled by copying.
/// Overlay labels are always complete after [`LabelOverlay::encode_labels`].
#[derive(Clone, Copy, Debug)]
pub(super) enum PointLabelEncoding {
    /// No part of it: the label is encoded when the key is written.
    Plain,
    /// The bytes before the value, without the length of the label.
    Begun(LabelText<'static>),
    /// The complete encoding, which keys copy.
    Whole(LabelText<'static>),
}

/// A label of a point that will be part of a series key: name and value are slices of the message
/// or generated texts.
#[derive(Clone, Copy, Debug)]
pub(super) struct PointLabel<'m> {
    /// Name of the label.
    pub name: LabelText<'m>,
    /// Value of the label.
    pub value: LabelText<'m>,
    /// The source of the label, from which orders are derived.
    pub source: PointLabelSource,
    /// The existing part of its encoding in a key.
    pub form: PointLabelEncoding,
}

impl<'m> PointLabel<'m> {
    fn plain(name: LabelText<'m>, value: LabelText<'m>, source: PointLabelSource) -> Self {
        Self {
            name,
            value,
            source,
            form: PointLabelEncoding::Plain,
        }
    }
}

/// A label of the overlay, with its precedence over labels of the point.
#[derive(Clone, Copy, Debug)]
pub(super) struct OverlayLabel<'m> {
    /// The label, whose source is not used.
    pub label: PointLabel<'m>,
    /// True if it replaces a label of the point with the same name. An empty one then removes that
    /// label.
    pub is_stronger: bool,
}

/// Labels that are merged into those of each point: sorted by name, without duplicates. Computed
/// once for each metric.
#[derive(Clone, Debug, Default)]
pub(super) struct LabelOverlay<'m>(Vec<OverlayLabel<'m>>);

impl<'m> LabelOverlay<'m> {
    /// Adds a label that is used only if the point has no label of that name.
    pub(super) fn set_default(
        &mut self,
        name: LabelText<'m>,
        value: LabelText<'m>,
        made: &GeneratedTexts,
    ) {
        self.put(name, value, false, made);
    }

    /// Adds a label that replaces others of its name, in the overlay and in points.
    pub(super) fn set(&mut self, name: LabelText<'m>, value: LabelText<'m>, made: &GeneratedTexts) {
        self.put(name, value, true, made);
    }

    fn put(
        &mut self,
        name: LabelText<'m>,
        value: LabelText<'m>,
        is_stronger: bool,
        made: &GeneratedTexts,
    ) {
        let new = OverlayLabel {
            label: PointLabel::plain(name, value, PointLabelSource::Other),
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
    pub(super) fn labels(&self) -> &[OverlayLabel<'m>] {
        &self.0
    }

    /// Returns the memory in bytes that [`Self::encode_labels`] will need, to be reserved before.
    pub(super) fn plain_bytes(&self) -> usize {
        let labels = self.0.iter().map(|over| &over.label);
        let plain = labels.filter(|label| matches!(label.form, PointLabelEncoding::Plain));
        plain
            .map(|label| LABEL_FRAME_BYTES + label.name.len() + label.value.len())
            .sum()
    }

    /// Encodes the labels that have no encoding yet, so that each point only copies them.
    pub(super) fn encode_labels(&mut self, made: &mut GeneratedTexts) {
        for OverlayLabel { label, .. } in &mut self.0 {
            if let PointLabelEncoding::Plain = label.form {
                label.form = PointLabelEncoding::Whole(made.push_label(label.name, label.value));
            }
        }
    }

    /// Becomes a copy of `other` and reuses its own memory.
    pub(super) fn copy_from(&mut self, other: &LabelOverlay<'m>) {
        self.0.clone_from(&other.0);
    }
}

/// Key and value of an attribute.
pub(super) type Pair<'m> = (&'m [u8], LabelText<'m>);

/// The labels of the current point: first its attributes, then the resulting label set. The memory
/// is reused for the next point.
#[derive(Debug, Default)]
pub(super) struct PointLabelSet<'m> {
    /// Keys and values of the attributes, in message order.
    attributes: Vec<Pair<'m>>,
    /// The labels that result from the attributes.
    own: Vec<PointLabel<'m>>,
    /// All labels including the overlay, sorted by name.
    all: Vec<PointLabel<'m>>,
}

impl<'m> PointLabelSet<'m> {
    /// Removes the attributes of the previous point.
    pub(super) fn clear(&mut self) {
        self.attributes.clear();
    }

    /// Adds an attribute of the current point; keys may repeat and may be in any order.
    pub(super) fn push(&mut self, key: &'m [u8], value: LabelText<'m>) {
        self.attributes.push((key, value));
    }

    /// Returns the attributes in message order. Their order identifies a cached order.
    pub(super) fn attributes(&self) -> &[Pair<'m>] {
        &self.attributes
    }

    /// Returns the attributes in message order, and the list of labels to be filled: sorted,
    /// without empty ones.
    pub(super) fn parts(&mut self) -> (&[Pair<'m>], &mut Vec<PointLabel<'m>>) {
        (&self.attributes, &mut self.all)
    }

    /// Computes the labels from the attributes and the overlay; fails if a key cannot be translated
    /// to a label name.
    pub(super) fn finish(
        &mut self,
        names: &mut LabelNameCache<'m>,
        translation: &OtlpTranslation,
        overlay: &LabelOverlay<'m>,
        made: &mut GeneratedTexts,
    ) -> Result<(), OtlpDecodeError> {
        self.own.clear();
        for (number, (key, value)) in self.attributes.iter().enumerate() {
            let source = PointLabelSource::Attribute(number as u32);
            let name = LabelText::Message(key);
            self.own.push(PointLabel::plain(name, *value, source));
        }
        self.own
            .sort_by(|a, b| made.get(a.name).cmp(made.get(b.name)));
        if translation.strategy.is_escaping() {
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
        names: &mut LabelNameCache<'m>,
        translation: &OtlpTranslation,
        made: &mut GeneratedTexts,
    ) -> Result<(), OtlpDecodeError> {
        let (mut is_sorted, mut before) = (true, None);
        for label in &mut self.own {
            let LabelText::Message(key) = label.name else {
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
            self.join_equal_names(made);
        }
        Ok(())
    }

    /// Joins the values of adjacent labels with equal names by semicolons, as upstream does.
    #[cold]
    fn join_equal_names(&mut self, made: &mut GeneratedTexts) {
        let mut joined: Vec<PointLabel<'m>> = Vec::with_capacity(self.own.len());
        for label in &self.own {
            let last = joined
                .last_mut()
                .filter(|last| made.get(last.name) == made.get(label.name));
            match last {
                Some(last) => {
                    last.source = PointLabelSource::Other;
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

    fn merge(&mut self, overlay: &LabelOverlay<'m>, made: &GeneratedTexts) {
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
                let source = PointLabelSource::Overlay(number as u32);
                self.all.push(PointLabel {
                    source,
                    ..over.label
                });
            }
        }
        self.all.extend(own);
    }

    /// Sets a label in the complete list, in sorted position, and returns its index.
    pub(super) fn set(
        &mut self,
        name: &'static str,
        value: LabelText<'m>,
        made: &GeneratedTexts,
    ) -> usize {
        let name = name.as_bytes();
        let label = PointLabel::plain(LabelText::Message(name), value, PointLabelSource::Other);
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
    pub(super) fn set_at(&mut self, at: usize, value: LabelText<'m>) {
        if let Some(label) = self.all.get_mut(at) {
            *label = PointLabel::plain(label.name, value, PointLabelSource::Other);
        }
    }

    /// Returns the labels including the overlay, sorted by name and without empty ones.
    pub(super) fn iter_merged(&self) -> &[PointLabel<'m>] {
        &self.all
    }
}
