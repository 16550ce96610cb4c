//! Caches the order in which attributes became labels, for points with the same attribute keys.
//!
//! ```text
//! keys     http.route  http.request.method  url.scheme        overlay: name, instance, job
//! pieces   overlay 0 | attribute 1 | attribute 0 | overlay 1 | overlay 2 | attribute 2
//! ```
//!
//! Names and order of the labels of a point depend only on the keys of its attributes and the names
//! in the overlay, provided that no value is empty and no two keys become the same label. Most
//! points of a request repeat both: for a cached order, keys are neither sorted nor translated, and
//! the encoded beginnings of the labels are reused.
//!
//! Invariant: a cached order gives the same labels as [`PointLabelSet::finish`].

use super::labels::{
    LABEL_FRAME_BYTES, LabelOverlay, OverlayLabel, Pair, PointLabel, PointLabelEncoding,
    PointLabelSet, PointLabelSource,
};
use super::text::{GeneratedTexts, LabelText};
use crate::error::WireError;
use crate::remote_write::RequestMemoryAccount;

/// Largest number of cached orders: an application has about ten sets of keys.
const ORDERS_MAX: usize = 16;

/// A label of a cached order, which refers to attributes and overlay by index. Together the pieces
/// give the complete sorted label set.
#[derive(Clone, Copy, Debug)]
enum OrderedLabel<'m> {
    /// The label of the overlay with this index.
    Overlay(u32),
    /// The label of an attribute, whose value differs from point to point.
    Attribute {
        number: u32,
        name: LabelText<'m>,
        begun: LabelText<'static>,
    },
}

/// A cached order: the labels that a sequence of attribute keys becomes. It applies to every point
/// with exactly these keys in this order.
#[derive(Debug)]
struct LabelOrder<'m> {
    /// Keys of the attributes in message order.
    keys: Vec<&'m [u8]>,
    pieces: Vec<OrderedLabel<'m>>,
}

/// The cached orders of one request, valid for one set of overlay names. A metric with other
/// overlay names clears them.
#[derive(Debug, Default)]
pub(super) struct LabelOrderCache<'m> {
    /// The overlay that was in effect for the cached orders.
    overlay: Vec<OverlayLabel<'m>>,
    orders: Vec<LabelOrder<'m>>,
    /// Index of the order that matched last.
    last: usize,
}

impl<'m> LabelOrderCache<'m> {
    /// Starts a metric with the overlay `overlay`, and clears the cache if the names in it have
    /// changed.
    pub(super) fn begin(&mut self, overlay: &LabelOverlay<'m>, made: &GeneratedTexts) {
        let labels = overlay.labels();
        let mut pairs = self.overlay.iter().zip(labels);
        let is_same = self.overlay.len() == labels.len()
            && pairs.all(|(known, new)| {
                known.is_stronger == new.is_stronger
                    && known.label.value.is_empty() == new.label.value.is_empty()
                    && made.get(known.label.name) == made.get(new.label.name)
            });
        if !is_same {
            self.orders.clear();
            self.overlay.clear();
            self.overlay.extend_from_slice(labels);
        }
    }

    /// Arranges the labels of the attributes in `set` by a cached order. Returns `false`, without
    /// changes, if none matches.
    #[inline]
    pub(super) fn apply(
        &mut self,
        set: &mut PointLabelSet<'m>,
        overlay: &LabelOverlay<'m>,
    ) -> bool {
        let attributes = set.attributes();
        let fits = |order: &LabelOrder<'m>| {
            order.keys.len() == attributes.len()
                && order.keys.iter().zip(attributes).all(|(a, (b, _))| a == b)
        };
        if !self.orders.get(self.last).is_some_and(fits) {
            match self.orders.iter().position(fits) {
                Some(at) => self.last = at,
                None => return false,
            }
        }
        let Some(order) = self.orders.get(self.last) else {
            return false;
        };
        if attributes.iter().any(|(_, value)| value.is_empty()) {
            return false;
        }
        let (attributes, all) = set.parts();
        all.clear();
        for piece in &order.pieces {
            all.extend(piece.label(attributes, overlay));
        }
        true
    }

    /// Caches the order of the labels in `set`, if it depends on keys and names only. Fails if the
    /// memory limit is reached.
    #[cold]
    pub(super) fn insert(
        &mut self,
        set: &PointLabelSet<'m>,
        made: &mut GeneratedTexts,
        charges: &mut RequestMemoryAccount<'_>,
    ) -> Result<(), WireError> {
        let attributes = set.attributes();
        let is_plain = attributes.iter().all(|(_, value)| !value.is_empty())
            && set
                .iter_merged()
                .iter()
                .all(|label| label.source != PointLabelSource::Other);
        if !is_plain || self.orders.len() == ORDERS_MAX {
            return Ok(());
        }
        let mut bytes = size_of_val(attributes);
        for label in set.iter_merged() {
            bytes += size_of::<OrderedLabel<'_>>() + LABEL_FRAME_BYTES + label.name.len();
        }
        charges.add(bytes)?;
        let pieces = set
            .iter_merged()
            .iter()
            .filter_map(|label| match label.source {
                PointLabelSource::Attribute(number) => Some(OrderedLabel::Attribute {
                    number,
                    name: label.name,
                    begun: made.push_label_start(label.name),
                }),
                PointLabelSource::Overlay(number) => Some(OrderedLabel::Overlay(number)),
                PointLabelSource::Other => None,
            });
        let pieces = pieces.collect();
        self.last = self.orders.len();
        self.orders.push(LabelOrder {
            keys: attributes.iter().map(|(key, _)| *key).collect(),
            pieces,
        });
        Ok(())
    }
}

impl<'m> OrderedLabel<'m> {
    #[inline]
    fn label(&self, attributes: &[Pair<'m>], overlay: &LabelOverlay<'m>) -> Option<PointLabel<'m>> {
        match self {
            OrderedLabel::Overlay(number) => {
                let over = overlay.labels().get(*number as usize)?;
                Some(over.label)
            }
            OrderedLabel::Attribute {
                number,
                name,
                begun,
            } => {
                let (_, value) = attributes.get(*number as usize)?;
                Some(PointLabel {
                    name: *name,
                    value: *value,
                    source: PointLabelSource::Attribute(*number),
                    form: PointLabelEncoding::Begun(*begun),
                })
            }
        }
    }
}
