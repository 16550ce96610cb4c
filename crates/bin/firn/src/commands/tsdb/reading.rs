//! Reads the samples of a data folder that no server uses, with the results of queries.

use super::progress::CommandProgressLine;
use firn_model::budget::Budget;
use firn_model::cancel::CancelToken;
use firn_model::columns::{SeriesBatch, SeriesColumns};
use firn_model::env::Env;
use firn_model::error::{Error, ErrorKind};
use firn_model::labels::Labels;
use firn_model::matcher::Matcher;
use firn_model::metadata::MetadataBatch;
use firn_model::sample::TimeRange;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::{MetadataRequest, Select, SelectRequest, Selection};
use firn_model::tenant::TenantId;
use firn_promql::parser::parse_selector;
use firn_storage::damage::Damage;
use firn_storage::data_dir::DataDir;
use firn_storage::store::{Store, StoreOptions};
use firn_wire::remote_write::KEY_FORMAT;
use std::path::Path;
use std::sync::Arc;

/// Maximum number of consecutive series that are decoded at a time.
const BATCH_SERIES: usize = 256;

/// A data folder, opened like by a server, with the selectors of a command.
pub struct DataFolderReader {
    store: Arc<Store>,
    tenant: TenantId,
    /// Selectors; a series is read if it matches one of them. Empty means all series.
    sets: Vec<Vec<Matcher>>,
    memory: Budget,
}

impl DataFolderReader {
    /// Opens the folder at `root`. Only series that match one of `selectors` are read, or all if
    /// there are none.
    pub fn open(env: &Env, root: &Path, selectors: &[String]) -> Result<Self, Error> {
        let parse = |text: &String| {
            parse_selector(text).map_err(|e| {
                let why = format!("--match {text:?}: {e}");
                Error::new(ErrorKind::Invalid, why)
            })
        };
        let sets = selectors.iter().map(parse).collect::<Result<_, _>>()?;
        // Fails before anything is changed if this is not a data folder of Firn.
        drop(DataDir::hold(env, root)?);
        let options = StoreOptions {
            key_format: KEY_FORMAT,
            retention_ms: i64::MAX,
            ..StoreOptions::new(root)
        };
        Ok(Self {
            store: Store::open(env.clone(), options)?,
            tenant: TenantId::anonymous(),
            sets,
            memory: Budget::new("reading", usize::MAX),
        })
    }

    /// Returns time ranges that contain all samples, unordered and possibly overlapping.
    pub fn ranges(&self) -> Vec<TimeRange> {
        self.store.time_ranges()
    }

    /// Returns the metadata in blocks, the newest of each metric.
    pub fn metadata(&self) -> Result<MetadataBatch, Error> {
        self.store.metadata(MetadataRequest {
            tenant: &self.tenant,
            metric: None,
            cancel: &CancelToken::new(),
            budget: &self.memory,
        })
    }

    /// Returns descriptions of the damage found since the folder was opened.
    pub fn damages(&self) -> Vec<String> {
        let damages = self.store.damages();
        let text = |damage: &Damage| format!("{}: {}", damage.file.display(), damage.what);
        damages.iter().map(text).collect()
    }

    /// Calls `take` with each series that has samples in `range`, in the order of labels.
    /// `progress` counts the series.
    pub fn each_series(
        &self,
        range: TimeRange,
        progress: Option<&CommandProgressLine>,
        take: &mut dyn FnMut(&Labels, SeriesColumns<'_>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let selections = self.select(range)?;
        let mut series = Vec::new();
        for (number, selection) in selections.iter().enumerate() {
            let named = (0..selection.len()).map(|i| (selection.labels(i), number, i));
            series.extend(named);
        }
        series.sort_unstable();
        series.dedup_by(|a, b| a.0 == b.0);
        if let Some(progress) = progress {
            progress.increase_total(series.len() as u64);
        }
        let mut batch = SeriesBatch::default();
        let is_next =
            |a: &(Labels, usize, usize), b: &(Labels, usize, usize)| a.1 == b.1 && a.2 + 1 == b.2;
        let runs = series.chunk_by(is_next);
        for run in runs.flat_map(|run| run.chunks(BATCH_SERIES)) {
            let (_, number, first) = run[0];
            batch.clear();
            selections[number].read(first..first + run.len(), &mut batch)?;
            for (i, (labels, ..)) in run.iter().enumerate() {
                let columns = batch.series(i);
                if !columns.times.is_empty() {
                    take(labels, columns)?;
                }
            }
            if let Some(progress) = progress {
                progress.add(run.len() as u64);
            }
        }
        Ok(())
    }

    fn select(&self, range: TimeRange) -> Result<Vec<Arc<dyn Selection>>, Error> {
        let all = [Vec::new()];
        let sets = match self.sets.as_slice() {
            [] => &all[..],
            sets => sets,
        };
        let select = |matchers: &Vec<Matcher>| {
            self.store.select(SelectRequest {
                tenant: &self.tenant,
                matchers,
                range,
                newest_only: false,
                cancel: &CancelToken::new(),
                budget: &self.memory,
                series: &SeriesLimit::unlimited(),
                span: None,
            })
        };
        sets.iter().map(select).collect()
    }
}
