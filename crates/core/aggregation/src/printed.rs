//! A batch with the fingerprints of its series, which aggregation and the store share.
//!
//! Invariant: there is exactly one fingerprint for each series of the batch, or none at all.

use firn_model::batch::{Batch, BatchSource};
use firn_model::error::Error;
use firn_model::fingerprint::{Fingerprint, HashKeys, SeriesHash};

/// Wraps a source and adds fingerprints to it, which aggregation and the store both need.
pub struct FingerprintedSource<'a> {
    source: &'a mut dyn BatchSource,
    hash: Option<SeriesHash>,
    prints: Vec<Fingerprint>,
}

impl<'a> FingerprintedSource<'a> {
    /// Hashes the keys of `source` with `hash`, if they have the format that the hash requires.
    pub fn new(source: &'a mut dyn BatchSource, hash: Option<SeriesHash>) -> Self {
        let batch = source.batch();
        let hash = hash.filter(|hash| batch.has_key_format(hash.format));
        let mut prints = Vec::new();
        if let Some(hash) = &hash {
            prints.reserve_exact(batch.series_count());
            batch.push_fingerprints(hash, &mut Vec::new(), &mut prints);
        }
        Self {
            source,
            hash,
            prints,
        }
    }
}

impl BatchSource for FingerprintedSource<'_> {
    fn batch(&self) -> &Batch {
        self.source.batch()
    }

    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error> {
        self.source.read_labels(series)
    }

    fn fingerprints(&self, keys: &HashKeys) -> Option<&[Fingerprint]> {
        let hash = self.hash.as_ref()?;
        std::ptr::eq(&*hash.keys, keys).then_some(&*self.prints)
    }

    fn remove_series(&mut self, series: &[u32]) -> Option<Batch> {
        let rest = self.source.remove_series(series);
        if rest.is_none() {
            let (mut at, mut taken) = (0, series.iter().peekable());
            self.prints.retain(|_| {
                at += 1;
                taken.next_if(|taken| **taken + 1 == at).is_none()
            });
        }
        rest
    }
}
