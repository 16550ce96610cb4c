//! The metrics of the store: values, names and help texts.

use super::StoreParts;
use super::block_work::{self, BlockWorkProgress};
use crate::damage::DamageKind;
use firn_model::metrics::{Collect, Counter, DurationHistogram, Gauge, MetricSink, MetricValue};

/// Metrics of the head and its maintenance, updated by the code that does the work.
#[derive(Debug, Default)]
pub(crate) struct StoreMetrics {
    /// Samples stored in the head, including silently accepted duplicates.
    pub(crate) appended_samples: Counter,
    /// Accepted late samples.
    pub(crate) late_samples: Counter,
    /// Late samples with the time of another late sample of the series.
    pub(crate) late_repeated: Counter,
    /// Late samples that were rejected because too many were in memory.
    pub(crate) late_refused: Counter,
    /// Number of series that were created in the head.
    pub(crate) created_series: Counter,
    /// Number of new series rejected because the head is full or a limit on new series is reached.
    pub(crate) refused_series: Counter,
    /// Number of series that were evicted from the head and are only in pages.
    pub(crate) evicted_series: Counter,
    /// Number of series removed after their last sample left the retention.
    pub(crate) removed_series: Counter,
    /// Sealed samples, pages written for them, and the bytes of these pages.
    pub(crate) sealed_samples: Counter,
    pub(crate) sealed_pages: Counter,
    pub(crate) page_bytes: Counter,
    /// Number of groups that are due for sealing.
    pub(crate) seal_queue: Gauge,
    /// Duration of each tick that sealed samples.
    pub(crate) seal_duration: DurationHistogram,
    /// Number of ticks in which sealing failed.
    pub(crate) seal_failures: Counter,
    /// Number of failures to seal some series of a group, and the number of affected groups.
    pub(crate) stuck_seals: Counter,
    pub(crate) stuck_groups: Gauge,
    /// Blocks that were cut.
    pub(crate) cuts: Counter,
    /// Failed cuts.
    pub(crate) cut_failures: Counter,
    /// Bytes of blocks written by cuts, flushes and merges.
    pub(crate) block_bytes_written: Counter,
    /// Late samples that were flushed to blocks.
    pub(crate) flushed_samples: Counter,
    /// Failed flushes.
    pub(crate) flush_failures: Counter,
    /// Completed merges of blocks.
    pub(crate) compactions: Counter,
    /// Failed merges.
    pub(crate) compaction_failures: Counter,
    /// Samples that the current merge has not read yet.
    pub(crate) compaction_left: Gauge,
    /// Progress of the current cut and the current merge.
    pub(crate) cutting: BlockWorkProgress,
    pub(crate) merging: BlockWorkProgress,
    /// Number of page segments, and of those removed by retention.
    pub(crate) page_segments: Gauge,
    pub(crate) removed_segments: Counter,
    /// Bytes of the series catalogue written, and failed attempts.
    pub(crate) catalogue_bytes: Counter,
    pub(crate) catalogue_failures: Counter,
    /// Records and pages that replay could not read.
    pub(crate) damaged_records: Counter,
    /// Writes rejected because sealing lagged behind.
    pub(crate) backlog_refusals: Counter,
    /// Memory of chunks, late samples, index and tables in bytes. The memory of late samples is
    /// always current.
    pub(crate) chunk_memory: Gauge,
    pub(crate) late_memory: Gauge,
    pub(crate) index_memory: Gauge,
    /// Approximate memory of series created since the index was last measured.
    pub(crate) new_series_memory: Gauge,
    pub(crate) table_memory: Gauge,
}

impl Collect for StoreParts {
    fn collect(&self, sink: &mut dyn MetricSink) {
        self.log.metrics().collect(sink);
        let counter = |c: &Counter| MetricValue::Counter(c.get() as f64);
        let gauge = |n: usize| MetricValue::Gauge(n as f64);
        let table = [
            (
                "firn_storage_head_appended_samples_total",
                "Accepted samples, including duplicates.",
                counter(&self.metrics.appended_samples),
            ),
            (
                "firn_storage_head_series",
                "Series in the head.",
                gauge(self.head.series_count()),
            ),
            (
                "firn_storage_head_refused_series_total",
                "Rejected new series: the head is full, or a limit on new series is reached.",
                counter(&self.metrics.refused_series),
            ),
            (
                "firn_storage_head_retired_series_total",
                "Series removed from the head after all of their samples were sealed and old.",
                counter(&self.metrics.evicted_series),
            ),
            (
                "firn_storage_index_series",
                "Series in the index, including those removed from the head.",
                gauge(self.head.index.series_count()),
            ),
            (
                "firn_storage_series_numbers_left",
                "New series that fit in the index; a restart makes room for more.",
                gauge(self.head.index.remaining_slots() as usize),
            ),
            (
                "firn_storage_head_active_series",
                "Series with a sample in the last 20 minutes of data time.",
                gauge(self.head.active_series()),
            ),
            (
                "firn_storage_head_born_series_total",
                "Series created.",
                counter(&self.metrics.created_series),
            ),
            (
                "firn_storage_head_removed_series_total",
                "Series removed after their last sample left the retention.",
                counter(&self.metrics.removed_series),
            ),
            (
                "firn_storage_replay_damaged_blocks_total",
                "Blocks of the log and pages that could not be read at start.",
                counter(&self.metrics.damaged_records),
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
        self.collect_late(sink);
        self.collect_sealing(sink);
        self.collect_pages(sink);
        self.collect_blocks(sink);
        block_work::collect(&self.metrics.cutting, &self.metrics.merging, sink);
        self.collect_retention(sink);
        self.collect_lookups(sink);
        self.collect_memory(sink);
        self.exemplars.collect(sink);
        self.collect_damages(sink);
    }
}

impl StoreParts {
    /// Writes the metrics of late samples in the head.
    fn collect_late(&self, sink: &mut dyn MetricSink) {
        let m = &self.metrics;
        let table = [
            (
                "firn_storage_head_late_samples_total",
                "Samples that could not be appended in order and were accepted as late samples.",
                &m.late_samples,
            ),
            (
                "firn_storage_head_late_repeated_samples_total",
                "Late samples with the timestamp of another late sample of their series in the \
                 head.",
                &m.late_repeated,
            ),
            (
                "firn_storage_head_late_refused_samples_total",
                "Late samples rejected because too many late samples were in memory.",
                &m.late_refused,
            ),
        ];
        for (name, help, counter) in table {
            sink.metric(name, help, &[], MetricValue::Counter(counter.get() as f64));
        }
    }

    /// Writes the metrics of sealing, of groups that cannot be sealed, and of writes rejected
    /// because sealing lags behind.
    fn collect_sealing(&self, sink: &mut dyn MetricSink) {
        let counter = |c: &Counter| MetricValue::Counter(c.get() as f64);
        let m = &self.metrics;
        let table = [
            (
                "firn_storage_seal_samples_total",
                "Samples moved from the head into pages.",
                counter(&m.sealed_samples),
            ),
            (
                "firn_storage_seal_pages_total",
                "Pages written.",
                counter(&m.sealed_pages),
            ),
            (
                "firn_storage_seal_queue_groups",
                "Groups of series that are due to be sealed.",
                MetricValue::Gauge(m.seal_queue.get() as f64),
            ),
            (
                "firn_storage_seal_duration_seconds",
                "Duration of sealing per tick.",
                MetricValue::Histogram(&m.seal_duration),
            ),
            (
                "firn_storage_seal_failures_total",
                "Ticks that could not seal all due groups.",
                counter(&m.seal_failures),
            ),
            (
                "firn_storage_seal_group_failures_total",
                "Attempts that could not seal some series of a group.",
                counter(&m.stuck_seals),
            ),
            (
                "firn_storage_seal_stuck_groups",
                "Groups with series that cannot be sealed.",
                MetricValue::Gauge(m.stuck_groups.get() as f64),
            ),
            (
                "firn_storage_seal_backlog_refusals_total",
                "Writes rejected because the log contained too much unsealed data.",
                counter(&m.backlog_refusals),
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
    }

    /// Writes the metrics of page segments, of the caches of pages and blocks, and of the
    /// catalogue.
    fn collect_pages(&self, sink: &mut dyn MetricSink) {
        let counter = |c: &Counter| MetricValue::Counter(c.get() as f64);
        let m = &self.metrics;
        let table = [
            (
                "firn_storage_page_written_bytes_total",
                "Bytes of pages written.",
                counter(&m.page_bytes),
            ),
            (
                "firn_storage_page_segments",
                "Segments of pages on disk.",
                MetricValue::Gauge(m.page_segments.get() as f64),
            ),
            (
                "firn_storage_page_files_open",
                "Segments of pages whose files are open for reading.",
                MetricValue::Gauge(self.sealed.files.open_files.get() as f64),
            ),
            (
                "firn_storage_page_file_opens_total",
                "Openings of segment files for reading.",
                counter(&self.sealed.files.opens),
            ),
            (
                "firn_storage_page_segments_removed_total",
                "Segments of pages removed by the retention.",
                counter(&m.removed_segments),
            ),
            (
                "firn_storage_page_cache_hits_total",
                "Pages found in memory.",
                counter(&self.sealed.cache.hits),
            ),
            (
                "firn_storage_page_cache_misses_total",
                "Pages read from their segments.",
                counter(&self.sealed.cache.misses),
            ),
            (
                "firn_storage_block_cache_hits_total",
                "Parts of blocks found in memory.",
                counter(&self.blocks.cache.hits),
            ),
            (
                "firn_storage_block_cache_misses_total",
                "Parts of blocks read from their files.",
                counter(&self.blocks.cache.misses),
            ),
            (
                "firn_storage_block_read_bytes_total",
                "Bytes of blocks read, for queries and at starts.",
                counter(&self.blocks.cache.read_bytes),
            ),
            (
                "firn_storage_catalogue_written_bytes_total",
                "Bytes of the series catalogue written.",
                counter(&m.catalogue_bytes),
            ),
            (
                "firn_storage_catalogue_failures_total",
                "Failures to write the catalogue or to trim the log.",
                counter(&m.catalogue_failures),
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
    }

    /// Writes the number of damages by kind.
    fn collect_damages(&self, sink: &mut dyn MetricSink) {
        for kind in DamageKind::ALL {
            sink.metric(
                "firn_storage_damages_total",
                "Damaged ranges found in files or memory, counted once each.",
                &[("kind", kind.as_str())],
                MetricValue::Counter(self.damages.count(kind) as f64),
            );
        }
    }

    /// Writes the metrics of blocks, cuts, flushes of late samples, and merges.
    fn collect_blocks(&self, sink: &mut dyn MetricSink) {
        let counter = |c: &Counter| MetricValue::Counter(c.get() as f64);
        let gauge = |g: &Gauge| MetricValue::Gauge(g.get() as f64);
        let (m, blocks) = (&self.metrics, &self.blocks);
        let table = [
            (
                "firn_storage_blocks",
                "Blocks in the manifest.",
                gauge(&blocks.count),
            ),
            (
                "firn_storage_blocks_bytes",
                "Bytes of the blocks in the manifest.",
                gauge(&blocks.bytes),
            ),
            (
                "firn_storage_blocks_bad",
                "Quarantined blocks: found damaged when opened, kept on disk, not read.",
                gauge(&blocks.bad),
            ),
            (
                "firn_storage_blocks_apart",
                "Blocks with damaged bytes: still read, but not merged until a restart.",
                gauge(&blocks.apart),
            ),
            (
                "firn_storage_cuts_total",
                "Blocks cut from pages.",
                counter(&m.cuts),
            ),
            (
                "firn_storage_cut_failures_total",
                "Failed cuts; each is retried.",
                counter(&m.cut_failures),
            ),
            (
                "firn_storage_late_flushed_samples_total",
                "Late samples moved from the head into blocks.",
                counter(&m.flushed_samples),
            ),
            (
                "firn_storage_late_flush_failures_total",
                "Failed flushes of late samples; each is retried.",
                counter(&m.flush_failures),
            ),
            (
                "firn_storage_compactions_total",
                "Merges of blocks.",
                counter(&m.compactions),
            ),
            (
                "firn_storage_compaction_failures_total",
                "Failed merges; each is retried.",
                counter(&m.compaction_failures),
            ),
            (
                "firn_storage_compaction_left_samples",
                "Samples that the running merge has yet to read.",
                gauge(&m.compaction_left),
            ),
            (
                "firn_storage_block_written_bytes_total",
                "Bytes of blocks written by cuts, flushes and merges.",
                counter(&m.block_bytes_written),
            ),
        ];
        for (name, help, value) in table {
            sink.metric(name, help, &[], value);
        }
    }

    /// Writes the metrics of the work of lookups.
    fn collect_lookups(&self, sink: &mut dyn MetricSink) {
        let work = self.head.index.lookup_work();
        let table = [
            (
                "firn_storage_lookup_postings_runs_total",
                "Runs of postings read by look-ups.",
                &work.runs,
            ),
            (
                "firn_storage_lookup_values_total",
                "Label values that look-ups resolved or matched.",
                &work.values,
            ),
            (
                "firn_storage_lookup_filtered_series_total",
                "Series whose labels look-ups read because that was cheaper than reading postings.",
                &work.series,
            ),
        ];
        for (name, help, counter) in table {
            sink.metric(name, help, &[], MetricValue::Counter(counter.get() as f64));
        }
    }

    /// Writes the memory of the store by part.
    fn collect_memory(&self, sink: &mut dyn MetricSink) {
        for (part, bytes) in self.memory() {
            sink.metric(
                "firn_storage_head_memory_bytes",
                "Memory of the store by part, as of the last sweep.",
                &[("part", part)],
                MetricValue::Gauge(bytes.get() as f64),
            );
        }
    }
}
