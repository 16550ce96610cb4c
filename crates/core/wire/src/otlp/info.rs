//! Writes `target_info`, which contains the attributes of a resource that do not identify it.
//!
//! The series has samples over the time range of the resource's points: one at the newest point,
//! and before it, back to the oldest, as many as a query needs to find one at any time in between.

use super::emit::nanos_to_millis;
use super::labels::LabelOverlay;
use super::request::{
    OtlpRequestDecoder, OtlpResource, SERVICE_INSTANCE, SERVICE_NAME, SERVICE_NAMESPACE,
};
use super::text::LabelText;
use super::trouble::OtlpDecodeError;
use crate::remote_write::{ReceivedMetadata, SAMPLE_BYTES, push_metadata};
use firn_model::labels::METRIC_NAME;
use firn_model::metadata::MetricType;
use xxhash_rust::xxh3::xxh3_128;

const NAME: &[u8] = b"target_info";
const HELP: &[u8] = b"Target metadata";

/// Largest number of samples of one resource in a request: two and a half days with the default
/// step. If the points of a request span more time, only the newest part of it has samples.
const SAMPLES_MAX: u64 = 1440;

impl<'m> OtlpRequestDecoder<'_, '_, 'm> {
    /// Adds the `target_info` series of `resource`, if it has points and attributes that do
    /// not identify it. Fails if its labels are invalid.
    pub(super) fn push_target_info(
        &mut self,
        resource: &OtlpResource<'m>,
    ) -> Result<(), OtlpDecodeError> {
        const NAMING: [&[u8]; 3] = [SERVICE_NAMESPACE, SERVICE_NAME, SERVICE_INSTANCE];
        let Some(span) = resource.span else {
            return Ok(());
        };
        let is_naming = |key: &[u8]| NAMING.contains(&key);
        if resource.attributes.iter().all(|(key, _)| is_naming(key)) {
            return Ok(());
        }
        self.set.clear();
        let keeps_naming = self.reader.translation.keeps_identifying;
        for (key, value) in &resource.attributes {
            if keeps_naming || !is_naming(key) {
                self.set.push(key, *value);
            }
        }
        let mut overlay = LabelOverlay::default();
        resource.push_identity_labels(&mut overlay, &self.made);
        let label = LabelText::Message(METRIC_NAME.as_bytes());
        overlay.set(label, LabelText::Message(NAME), &self.made);
        let translation = self.reader.translation;
        self.set
            .finish(&mut self.names, translation, &overlay, &mut self.made)?;
        let is_named = self.set.iter_merged().iter().any(|label| {
            let name = self.made.get(label.name);
            name == b"job" || name == b"instance"
        });
        if !is_named {
            return Ok(());
        }
        let (oldest, newest) = span;
        self.push_info_samples(oldest, newest)?;
        let said = ReceivedMetadata {
            name: NAME,
            kind: MetricType::Gauge,
            help: HELP,
            unit: b"",
        };
        push_metadata(said, &mut self.charges, self.metadata)?;
        Ok(())
    }

    /// Adds the series in the set with those of its samples that the request does not contain yet.
    fn push_info_samples(&mut self, oldest: u64, newest: u64) -> Result<(), OtlpDecodeError> {
        let key = self.write_key()?;
        let hash = xxh3_128(self.keys.get(key.clone()).unwrap_or_default());
        let step = self.reader.info_step_ns.max(1);
        let skipped = ((newest - oldest) / step).saturating_sub(SAMPLES_MAX);
        let mut at = oldest + skipped * step;
        while at < newest {
            self.push_info_sample(hash, at)?;
            at = at.saturating_add(step);
        }
        self.push_info_sample(hash, newest)?;
        let key_bytes = self.keys.get(key.clone()).unwrap_or_default();
        self.target_info.end_series(key_bytes);
        self.keys.truncate(key.start);
        Ok(())
    }

    fn push_info_sample(&mut self, labels: u128, at: u64) -> Result<(), OtlpDecodeError> {
        let time = nanos_to_millis(at);
        if self.target_info.add_sample(labels, time) {
            self.charges.add(SAMPLE_BYTES + size_of::<(u128, i64)>())?;
        }
        Ok(())
    }
}
