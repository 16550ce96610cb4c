//! Resolves a series: finds the rules that match its labels, and creates its entry for each of
//! them.
//!
//! This happens once for a series, and again after a change of the rules.

use super::look_up::SourceLookupResult;
use super::sources::SourceRef;
use super::{AggregationGroup, AggregationState, LANES};
use crate::entries::{ENTRIES_MAX, SourceEntry};
use crate::output::{AggregationOutput, OutputSampleType};
use crate::spec::{AggregatedMetricKind, AggregationRuleSpec};
use firn_model::batch::{Batch, HistogramSample};
use firn_model::fingerprint::Fingerprint;
use firn_model::histogram::Histogram;
use firn_model::labels::{Labels, LabelsRef, METRIC_NAME};
use firn_model::sample::{TimestampMs, is_stale};
use xxhash_rust::xxh3::xxh3_64;

/// A matching rule, and the labels of the result to which the series contributes.
struct SourceRuleMatch {
    group: usize,
    rule: usize,
    result: Labels,
}

impl AggregationState {
    /// Resolves series `i`, whose labels were decoded. Returns its first entry, and whether its raw
    /// samples must not be stored. Entries are created for the matching rules, unless none of its
    /// samples up to `time_max` can count.
    pub(super) fn resolve_series(
        &mut self,
        batch: &Batch,
        i: usize,
        time_max: TimestampMs,
    ) -> (Option<SourceRef>, bool) {
        let samples = batch.series(i);
        let labels = samples.labels;
        if labels.is_empty() {
            // The series is invalid and was rejected.
            return (None, false);
        }
        let print = self.look_up.fingerprint_of_labels(labels);
        let came_as = self.look_up.prints[i];
        if came_as != print {
            self.look_up.cache_alias(came_as, print);
        }
        self.look_up.prints[i] = print;
        // An earlier series of the batch may have had the same labels.
        match self.find_fingerprint(print) {
            Some(SourceLookupResult::Known(first)) => return (Some(first), false),
            Some(_) => return (None, false),
            None => {}
        }
        let legs = self.match_rules(labels);
        let newest = samples.histograms.last().map(|sample| &sample.histogram);
        let histogram = newest.filter(|_| samples.values.iter().all(|value| is_stale(*value)));
        let (legs, is_mixed) = self.filter_matches_by_type(legs, histogram.is_some());
        if legs.is_empty() {
            self.remove_source(print);
            if !is_mixed {
                self.look_up.cache_passing_series(print);
            }
            return (None, false);
        }
        let rule = |leg: &SourceRuleMatch| &self.groups[leg.group].spec.rules[leg.rule];
        let drops = !is_mixed && legs.iter().any(|leg| rule(leg).drops);
        let floats = samples.times.iter().zip(samples.values);
        let float_counts = |(time, value): (&i64, &f64)| *time <= time_max && !is_stale(*value);
        let histogram_counts =
            |sample: &HistogramSample| sample.time <= time_max && !sample.histogram.is_stale();
        let can_count =
            floats.into_iter().any(float_counts) || samples.histograms.iter().any(histogram_counts);
        let is_known = self.sources.find_source(&self.lanes, print).is_some();
        if !is_known && !can_count {
            return (None, drops);
        }
        self.create_missing_entries(labels, print, &legs, histogram);
        (self.sources.find_source(&self.lanes, print), drops)
    }

    /// Returns those of `legs` that accept the sample type of the series, and whether
    /// another one was skipped because its result already has the other type.
    fn filter_matches_by_type(
        &self,
        legs: Vec<SourceRuleMatch>,
        is_native: bool,
    ) -> (Vec<SourceRuleMatch>, bool) {
        let mut is_mixed = false;
        let fits = |leg: &SourceRuleMatch| {
            let group = &self.groups[leg.group];
            let op = group.spec.rules[leg.rule].op;
            if is_native && !op.accepts_histograms() {
                group.counts.histogram_sources.inc();
                return false;
            }
            let slot = self.lanes[self.find_lane(leg)].as_ref();
            let output = slot.and_then(|slot| {
                let at = slot
                    .lane
                    .find_output(group.identities[leg.rule], &leg.result)?;
                slot.lane.output(at)
            });
            let fits = output.is_none_or(|output| {
                if is_native {
                    output.form.accepts_histograms()
                } else {
                    output.form.accepts_floats()
                }
            });
            if !fits {
                group.counts.mixed.inc();
                is_mixed = true;
            }
            fits
        };
        let legs = legs.into_iter().filter(fits).collect();
        (legs, is_mixed)
    }

    /// Returns the index of the lane that contains the result of `leg`.
    fn find_lane(&self, leg: &SourceRuleMatch) -> usize {
        let hash = xxh3_64(leg.result.as_bytes());
        self.groups[leg.group].base + hash as usize % LANES
    }

    fn match_rules(&self, labels: LabelsRef<'_>) -> Vec<SourceRuleMatch> {
        let mut legs = Vec::new();
        for (group, AggregationGroup { spec, .. }) in self.groups.iter().enumerate() {
            let rules = spec.rules.iter().enumerate();
            for (rule, spec) in rules.filter(|(_, spec)| spec.matches_source(labels)) {
                let result = spec.result_labels(labels);
                legs.push(SourceRuleMatch {
                    group,
                    rule,
                    result,
                });
            }
        }
        legs
    }

    /// Creates the missing entries of a source, keeps the existing ones, and removes those of other
    /// rules. `histogram` is a sample of the source if it has histograms.
    fn create_missing_entries(
        &mut self,
        labels: LabelsRef<'_>,
        print: Fingerprint,
        legs: &[SourceRuleMatch],
        histogram: Option<&Histogram>,
    ) {
        let known = self.collect_entries(print);
        let mut kept = Vec::with_capacity(legs.len());
        for leg in legs {
            let place = self.find_lane(leg);
            let Some(output) = self.find_or_create_output(place, leg, labels, histogram) else {
                continue;
            };
            let is_it = |(reference, entry): &&(SourceRef, SourceEntry)| {
                reference.lane_and_entry().0 == place && entry.output == output
            };
            let drops = self.groups[leg.group].spec.rules[leg.rule].drops;
            match known.iter().find(is_it) {
                Some((reference, _)) => {
                    kept.push(*reference);
                    self.mark_entry_valid(*reference, drops);
                }
                None => self.create_entry(place, print, output, drops, leg.group),
            }
        }
        for (reference, _) in known {
            if !kept.contains(&reference) {
                self.remove_entry(reference, print);
            }
        }
    }

    /// Returns the output of `leg` in the lane at index `place`, creating it if necessary.
    fn find_or_create_output(
        &mut self,
        place: usize,
        leg: &SourceRuleMatch,
        labels: LabelsRef<'_>,
        histogram: Option<&Histogram>,
    ) -> Option<u32> {
        let group = &self.groups[leg.group];
        let spec: &AggregationRuleSpec = &group.spec.rules[leg.rule];
        let identity = group.identities[leg.rule];
        let slot = self.lanes[place].as_mut()?;
        if let Some(output) = slot.lane.find_output(identity, &leg.result) {
            return Some(output);
        }
        let at = slot.lane.next_output_number();
        if at as usize >= ENTRIES_MAX {
            return None;
        }
        let name = labels.get(METRIC_NAME);
        let (kind, form) = match histogram {
            _ if spec.op.ignores_values() => (AggregatedMetricKind::Gauge, OutputSampleType::Any),
            Some(histogram) => (
                spec.kind_of_histogram_source(histogram),
                OutputSampleType::Native(Box::default()),
            ),
            None => (
                spec.kind_of_source(name, (self.kind_of)(name)),
                OutputSampleType::Float,
            ),
        };
        let interval_ms = slot.lane.params.interval_ms;
        let end = slot.lane.written.saturating_add(interval_ms);
        let output =
            AggregationOutput::new(identity, kind, form, leg.result.clone(), end, interval_ms);
        slot.ops.push_output(at, &output, end);
        slot.lane.put_output(at, output);
        slot.lane.set_rule_index(at, leg.rule);
        Some(at)
    }

    fn create_entry(
        &mut self,
        place: usize,
        print: Fingerprint,
        output: u32,
        drops: bool,
        group: usize,
    ) {
        let is_full = self.sources.len() >= self.sources_max;
        let Some(slot) = &mut self.lanes[place] else {
            return;
        };
        let Some(at) = slot.lane.entries.next_number().filter(|_| !is_full) else {
            self.groups[group].counts.refused_sources.inc();
            return;
        };
        let mut entry = SourceEntry::new(print, output);
        entry.generation = self.look_up.generation;
        entry.set_flag(SourceEntry::DROPS, drops);
        slot.create_source(at, entry);
        self.sources
            .link_entry(&mut self.lanes, SourceRef::new(place, at), print);
    }

    /// Marks an entry as valid under the current configuration.
    fn mark_entry_valid(&mut self, reference: SourceRef, drops: bool) {
        let (place, at) = reference.lane_and_entry();
        if let Some(slot) = &mut self.lanes[place]
            && let Some(entry) = slot.lane.entries.get_mut(at)
        {
            entry.generation = self.look_up.generation;
            entry.set_flag(SourceEntry::DROPS, drops);
        }
    }

    /// Removes all entries of a source.
    fn remove_source(&mut self, print: Fingerprint) {
        for (reference, _) in self.collect_entries(print) {
            self.remove_entry(reference, print);
        }
    }

    fn remove_entry(&mut self, reference: SourceRef, print: Fingerprint) {
        let (place, at) = reference.lane_and_entry();
        if let Some(slot) = &mut self.lanes[place] {
            slot.ops.push_remove(at);
            slot.lane.remove_source(at);
        }
        self.sources.unlink_entry(&mut self.lanes, reference, print);
    }

    /// Returns the entries of a source.
    fn collect_entries(&self, print: Fingerprint) -> Vec<(SourceRef, SourceEntry)> {
        let mut entries = Vec::new();
        let mut next = self.sources.find_source(&self.lanes, print);
        while let Some(reference) = next {
            let (place, at) = reference.lane_and_entry();
            let slot = self.lanes[place].as_ref();
            if let Some(entry) = slot.and_then(|slot| slot.lane.entries.get(at)) {
                entries.push((reference, *entry));
            }
            next = self.sources.next_of_source(reference);
        }
        entries
    }
}
