//! A source of batches whose keys may be encoded in unusual forms.

use firn_model::batch::{Batch, BatchSource, LabelDecodeOutcome};
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::{Labels, push_uvarint};
use firn_model::series_key::{CanonicalKeys, KeyFormat};

/// The form in which a series is added to a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LabelForm {
    /// Decoded labels.
    Decoded,
    /// The canonical key.
    Canonical,
    /// A key with the labels in reverse order.
    Reversed,
    /// A key with an additional label without a value.
    WithEmptyValue,
    /// A key whose lengths take more bytes than necessary.
    LongLengths,
    /// A key that is cut off, so that the batch is invalid.
    Malformed,
}

impl LabelForm {
    /// All forms of valid keys.
    pub(super) const VALID: [Self; 5] = [
        Self::Decoded,
        Self::Canonical,
        Self::Reversed,
        Self::WithEmptyValue,
        Self::LongLengths,
    ];
}

/// A batch of series in several forms. Series with the label `invalid` are rejected.
#[derive(Clone, Default)]
pub(super) struct KeySource {
    batch: Batch,
    message: Vec<u8>,
    /// The rejected label sets, in the order in which they were decoded.
    pub(super) rejected: Vec<Labels>,
    /// True if the fingerprints of the received keys are offered.
    pub(super) fingerprints: Option<Vec<firn_model::fingerprint::Fingerprint>>,
}

impl KeySource {
    /// Returns the batch, to which the caller adds samples of the next series.
    pub(super) fn batch_mut(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Ends a series with these labels, in this form.
    pub(super) fn end_series(&mut self, labels: &Labels, form: LabelForm) {
        let start = self.message.len();
        let mut pairs: Vec<(&str, &[u8])> = labels.iter().collect();
        match form {
            LabelForm::Decoded => {
                let bytes = labels.as_bytes();
                self.batch.label_bytes().extend_from_slice(bytes);
                return self.batch.end_series();
            }
            LabelForm::Reversed => pairs.reverse(),
            LabelForm::WithEmptyValue => pairs.push(("zz", b"")),
            LabelForm::Canonical | LabelForm::LongLengths | LabelForm::Malformed => {}
        }
        for (name, value) in pairs {
            for bytes in [name.as_bytes(), value] {
                if form == LabelForm::LongLengths && bytes.len() < 0x80 {
                    self.message.extend([bytes.len() as u8 | 0x80, 0]);
                } else {
                    push_uvarint(&mut self.message, bytes.len() as u64);
                }
                self.message.extend_from_slice(bytes);
            }
        }
        if form == LabelForm::Malformed {
            self.message.pop();
        }
        self.batch.end_unread_series(start..self.message.len());
    }

    /// Completes the batch.
    pub(super) fn finish(&mut self) {
        let message = std::mem::take(&mut self.message);
        self.batch.put_message(message, &CanonicalKeys);
        self.batch.assert_complete();
    }
}

impl BatchSource for KeySource {
    fn batch(&self) -> &Batch {
        &self.batch
    }

    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error> {
        assert!(series.is_sorted_by(|a, b| a < b), "{series:?}");
        for series in series {
            let rejected = &mut self.rejected;
            self.batch.read_key(*series as usize, |key, _, arena| {
                let malformed = || Error::new(ErrorKind::Invalid, "malformed key");
                let labels = decode(key).ok_or_else(malformed)?;
                arena.extend_from_slice(labels.as_bytes());
                if !labels.get("invalid").is_empty() {
                    rejected.push(labels);
                    return Ok::<_, Error>(LabelDecodeOutcome::Refused);
                }
                let mut canonical = Vec::new();
                CanonicalKeys.push_key(&mut canonical, labels.as_ref());
                Ok(if canonical == key {
                    LabelDecodeOutcome::StandsByKey
                } else {
                    LabelDecodeOutcome::Stands
                })
            })?;
        }
        Ok(())
    }

    fn fingerprints(
        &self,
        _: &firn_model::fingerprint::HashKeys,
    ) -> Option<&[firn_model::fingerprint::Fingerprint]> {
        self.fingerprints.as_deref()
    }

    fn remove_series(&mut self, series: &[u32]) -> Option<Batch> {
        self.batch.remove_series(series);
        None
    }
}

/// Decodes a key with labels in any order and lengths in any form. Returns `None` if it is cut off.
fn decode(key: &[u8]) -> Option<Labels> {
    let mut rest = key;
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let name = take_bytes(&mut rest)?;
        pairs.push((
            String::from_utf8(name.to_vec()).ok()?,
            take_bytes(&mut rest)?,
        ));
    }
    Some(Labels::from_pairs(pairs))
}

fn take_bytes<'k>(rest: &mut &'k [u8]) -> Option<&'k [u8]> {
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = *rest.split_off_first()?;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    rest.split_off(..length)
}
