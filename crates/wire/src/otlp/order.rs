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
//! Invariant: a cached order gives the same labels as [`LabelSet::finish`].

use super::labels::{Form, LABEL_FRAME_BYTES, Label, LabelSet, Overlaid, Overlay, Pair, Source};
use super::text::{Made, Text};
use crate::error::WireError;
use crate::remote_write::Charges;

/// Largest number of cached orders: an application has about ten sets of keys.
const ORDERS_MAX: usize = 16;

/// A label of a cached order, which refers to attributes and overlay by index. Together the pieces
/// give the complete sorted label set.
#[derive(Clone, Copy, Debug)]
enum Piece<'m> {
    /// The label of the overlay with this index.
    Overlay(u32),
    /// The label of an attribute, whose value differs from point to point.
    Attribute {
        number: u32,
        name: Text<'m>,
        begun: Text<'static>,
    },
}

/// A cached order: the labels that a sequence of attribute keys becomes. It applies to every point
/// with exactly these keys in this order.
#[derive(Debug)]
struct Order<'m> {
    /// Keys of the attributes in message order.
    keys: Vec<&'m [u8]>,
    pieces: Vec<Piece<'m>>,
}

/// The cached orders of one request, valid for one set of overlay names. A metric with other
/// overlay names clears them.
#[derive(Debug, Default)]
pub(super) struct Orders<'m> {
    /// The overlay that was in effect for the cached orders.
    overlay: Vec<Overlaid<'m>>,
    orders: Vec<Order<'m>>,
    /// Index of the order that matched last.
    last: usize,
}

impl<'m> Orders<'m> {
    /// Starts a metric with the overlay `overlay`, and clears the cache if the names in it have
    /// changed.
    pub(super) fn begin(&mut self, overlay: &Overlay<'m>, made: &Made) {
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
    pub(super) fn apply(&mut self, set: &mut LabelSet<'m>, overlay: &Overlay<'m>) -> bool {
        let attributes = set.attributes();
        let fits = |order: &Order<'m>| {
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
    pub(super) fn note(
        &mut self,
        set: &LabelSet<'m>,
        made: &mut Made,
        charges: &mut Charges<'_>,
    ) -> Result<(), WireError> {
        let attributes = set.attributes();
        let is_plain = attributes.iter().all(|(_, value)| !value.is_empty())
            && set.all().iter().all(|label| label.source != Source::Other);
        if !is_plain || self.orders.len() == ORDERS_MAX {
            return Ok(());
        }
        let mut bytes = size_of_val(attributes);
        for label in set.all() {
            bytes += size_of::<Piece<'_>>() + LABEL_FRAME_BYTES + label.name.len();
        }
        charges.add(bytes)?;
        let pieces = set.all().iter().filter_map(|label| match label.source {
            Source::Attribute(number) => Some(Piece::Attribute {
                number,
                name: label.name,
                begun: made.beginning(label.name),
            }),
            Source::Overlay(number) => Some(Piece::Overlay(number)),
            Source::Other => None,
        });
        let pieces = pieces.collect();
        self.last = self.orders.len();
        self.orders.push(Order {
            keys: attributes.iter().map(|(key, _)| *key).collect(),
            pieces,
        });
        Ok(())
    }
}

impl<'m> Piece<'m> {
    #[inline]
    fn label(&self, attributes: &[Pair<'m>], overlay: &Overlay<'m>) -> Option<Label<'m>> {
        match self {
            Piece::Overlay(number) => {
                let over = overlay.labels().get(*number as usize)?;
                Some(over.label)
            }
            Piece::Attribute {
                number,
                name,
                begun,
            } => {
                let (_, value) = attributes.get(*number as usize)?;
                Some(Label {
                    name: *name,
                    value: *value,
                    source: Source::Attribute(*number),
                    form: Form::Begun(*begun),
                })
            }
        }
    }
}
