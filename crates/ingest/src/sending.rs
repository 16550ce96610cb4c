//! Sending on: what the pipeline stores is kept for other receivers of remote write, and made what
//! each of them is to get.
//!
//! ```text
//! batch -> request of remote write 1.0 -> kept on disk (SendOn) -> acknowledged
//!            -> Outgoing: external labels, relabelling -> the request that a receiver gets
//! ```
//!
//! A push of remote write 1.0 is kept as it came. Invariant: a batch is acknowledged only when its
//! request is kept. Queues and connections are left to the caller.

use crate::relabel::{self, Rule};
use firn_model::batch::{Batch, Source};
use firn_model::error::Error;
use firn_model::labels::{Labels, LabelsBuilder, LabelsRef, push_pair};
use firn_model::store::Ticket;
use firn_wire::WireLimits;
use firn_wire::remote_write::{Decoder, Reader, encode};
use std::sync::Arc;

/// Keeps requests for other receivers.
pub trait SendOn: Send + Sync {
    /// Whether there is a receiver: asked for each batch.
    fn is_on(&self) -> bool;

    /// Keeps the body of a request of remote write 1.0. The ticket resolves when it is durable.
    fn keep(&self, body: Vec<u8>) -> Ticket;
}

/// The request that carries what `source` holds; none if that is nothing.
pub(crate) fn request_of(source: &mut dyn Source) -> Result<Option<Vec<u8>>, Error> {
    let count = source.batch().series_count();
    if count == 0 {
        return Ok(None);
    }
    let all: Vec<u32> = (0..count as u32).collect();
    source.read_labels(&all)?;
    Ok(Some(encode(source.batch())))
}

/// What one receiver is to get of each request.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// `global.external_labels`: for series that have no such label.
    pub external_labels: Labels,
    /// `write_relabel_configs`
    pub relabel: Arc<[Rule]>,
    /// `send_native_histograms`
    pub sends_histograms: bool,
}

/// A request as one receiver gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rewritten {
    /// As it was kept.
    Same,
    /// This one.
    Body(Vec<u8>),
    /// Nothing of it.
    Nothing,
}

impl Outgoing {
    /// Makes the request of `body`. Fails if that cannot be read.
    pub fn rewrite(&self, body: &[u8], limits: &WireLimits) -> Result<Rewritten, String> {
        let is_plain = self.external_labels.is_empty() && self.relabel.is_empty();
        if is_plain && self.sends_histograms {
            return Ok(Rewritten::Same);
        }
        let mut decoder = Decoder::new(*limits);
        let decoded = decoder
            .decode(Reader::default(), body)
            .map_err(|e| e.to_string())?;
        if decoded.batch.series_count() == 0 && !decoded.metadata.is_empty() {
            // Metadata travels in requests of its own.
            return Ok(Rewritten::Same);
        }
        let mut rewritten = Batch::default();
        for series in decoded.batch.iter() {
            let histograms = match self.sends_histograms {
                true => series.histograms,
                false => &[],
            };
            if series.times.is_empty() && histograms.is_empty() {
                continue;
            }
            let labels = self.with_external(series.labels);
            let Some(labels) = self.relabelled(labels) else {
                continue;
            };
            rewritten.label_bytes().extend_from_slice(labels.as_bytes());
            for (time, value) in series.times.iter().zip(series.values) {
                rewritten.push_float(*time, *value);
            }
            for sample in histograms {
                rewritten.push_histogram(sample.clone());
            }
            rewritten.end_series();
        }
        Ok(match rewritten.series_count() {
            0 => Rewritten::Nothing,
            _ => Rewritten::Body(encode(&rewritten)),
        })
    }

    /// `labels`, and the external ones that it has not.
    fn with_external(&self, labels: LabelsRef<'_>) -> Labels {
        let mut bytes = Vec::with_capacity(labels.as_bytes().len());
        let mut external = self.external_labels.iter().peekable();
        for (name, value) in labels.iter() {
            while let Some((before, theirs)) = external.next_if(|(other, _)| *other < name) {
                push_pair(&mut bytes, before.as_bytes(), theirs);
            }
            external.next_if(|(other, _)| *other == name);
            push_pair(&mut bytes, name.as_bytes(), value);
        }
        for (name, value) in external {
            push_pair(&mut bytes, name.as_bytes(), value);
        }
        LabelsRef::from_canonical(&bytes).to_owned()
    }

    /// What relabelling makes of `labels`; none if it drops the series.
    fn relabelled(&self, labels: Labels) -> Option<Labels> {
        if self.relabel.is_empty() {
            return Some(labels);
        }
        let mut builder = LabelsBuilder::from_labels(labels.as_ref());
        let stays = relabel::apply(&self.relabel, &mut builder);
        let labels = builder.build();
        (stays && !labels.is_empty()).then_some(labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relabel::{Action, RuleSettings};
    use firn_model::names::NameScheme;

    fn body(series: &[&[(&str, &str)]]) -> Vec<u8> {
        let mut batch = Batch::default();
        for pairs in series {
            let labels = Labels::from_pairs(pairs.iter().copied());
            batch.push_series(labels.as_ref(), &[(5, 1.5), (6, f64::NAN)]);
        }
        encode(&batch)
    }

    fn outgoing(external: &[(&str, &str)], relabel: Vec<RuleSettings>) -> Outgoing {
        let compiled = relabel.into_iter().map(|r| r.compile(NameScheme::Utf8));
        Outgoing {
            external_labels: Labels::from_pairs(external.iter().copied()),
            relabel: compiled.collect::<Result<Vec<_>, _>>().unwrap().into(),
            sends_histograms: false,
        }
    }

    fn check(outgoing: &Outgoing, series: &[&[(&str, &str)]], expected: &[&[(&str, &str)]]) {
        let rewritten = outgoing.rewrite(&body(series), &WireLimits::default());
        let expected = match expected {
            [] => Rewritten::Nothing,
            expected => Rewritten::Body(body(expected)),
        };
        assert_eq!(rewritten, Ok(expected), "{series:?}");
    }

    #[test]
    fn external_labels_are_for_series_without_them() {
        let outgoing = outgoing(&[("region", "eu"), ("zone", "a")], Vec::new());
        check(
            &outgoing,
            &[&[("__name__", "up"), ("zone", "b")], &[("__name__", "x")]],
            &[
                &[("__name__", "up"), ("region", "eu"), ("zone", "b")],
                &[("__name__", "x"), ("region", "eu"), ("zone", "a")],
            ],
        );
    }

    #[test]
    fn relabelling_sees_external_labels_and_drops_series() {
        let drop = RuleSettings {
            source_labels: Some(vec!["region".into(), "__name__".into()]),
            regex: Some("eu;a.*".into()),
            action: Action::Drop,
            ..RuleSettings::default()
        };
        let outgoing = outgoing(&[("region", "eu")], vec![drop]);
        check(
            &outgoing,
            &[&[("__name__", "a1")], &[("__name__", "b1")]],
            &[&[("__name__", "b1"), ("region", "eu")]],
        );
        check(&outgoing, &[&[("__name__", "a1")]], &[]);
    }

    #[test]
    fn request_without_a_change_stays_as_it_is() {
        let mut outgoing = outgoing(&[], Vec::new());
        outgoing.sends_histograms = true;
        let rewritten = outgoing.rewrite(b"\xff\xff", &WireLimits::default());
        assert_eq!(rewritten, Ok(Rewritten::Same));
        outgoing.sends_histograms = false;
        assert!(
            outgoing
                .rewrite(b"\xff\xff", &WireLimits::default())
                .is_err()
        );
    }
}
