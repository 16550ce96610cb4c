//! Orders in which attributes became labels, for points that repeat them.
//!
//! ```text
//! keys     http.route  http.request.method  url.scheme        laid over: name, instance, job
//! pieces   over 0 | attribute 1 | attribute 0 | over 1 | over 2 | attribute 2
//! ```
//!
//! The labels of a point, their order and their names follow from the keys of its attributes and
//! from the names of what is laid over them, as long as no value is empty and no two keys become
//! one label. A request repeats both with nearly each point: one whose keys are known is neither
//! sorted nor translated, and the beginnings of its labels are bytes that are there.
//!
//! Invariant: labels in a known order are those that [`LabelSet::finish`] makes.

use super::labels::{Form, LABEL_FRAME_BYTES, Label, LabelSet, Overlaid, Overlay, Pair, Source};
use super::text::{Made, Text};
use crate::error::WireError;
use crate::remote_write::Charges;

/// Orders that are kept at once: an application has some ten sets of keys.
const ORDERS_MAX: usize = 16;

/// A label of a known order.
#[derive(Clone, Copy, Debug)]
enum Piece<'m> {
    /// The label that is laid over with this number.
    Overlay(u32),
    /// That of an attribute.
    Attribute {
        number: u32,
        name: Text<'m>,
        begun: Text<'static>,
    },
}

/// A known order.
#[derive(Debug)]
struct Order<'m> {
    /// Keys of the attributes, as they came.
    keys: Vec<&'m [u8]>,
    pieces: Vec<Piece<'m>>,
}

/// The orders that are known of a request.
#[derive(Debug, Default)]
pub(super) struct Orders<'m> {
    /// What was laid over the points that the orders are of.
    overlay: Vec<Overlaid<'m>>,
    orders: Vec<Order<'m>>,
    /// The one that fitted last.
    last: usize,
}

impl<'m> Orders<'m> {
    /// Begins a metric over whose points `overlay` is laid: where that has other names than before,
    /// nothing is known.
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

    /// Puts the labels of the attributes in `set` in a known order. `false`, and nothing done, if
    /// there is none for them.
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

    /// Keeps the order of the labels in `set`, if it follows from keys and names alone.
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
