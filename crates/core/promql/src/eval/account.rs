//! Accounts for the resources of a query: samples, bytes and time. Every operator reserves
//! resources here and checks for cancellation before it continues.
//!
//! Samples are counted like in Prometheus, so that the limit has the same meaning: the points that
//! operators hold at one time, even if Firn does not materialize them. Bytes are reserved in the
//! query's [`Budget`] before they are allocated. Cancellation is checked once per series, or more
//! often if a series takes long; a check is one atomic load.

use crate::eval::meter::EvalMeter;
use crate::request::Options;
use crate::value::{PromqlError, QueryStats};
use firn_model::budget::{Budget, Reservation};
use firn_model::cancel::{CancelReason, CancelToken};
use firn_model::error::{Error, ErrorKind};
use firn_model::losses::DataLossWarnings;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::Selection;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The counters at the beginning of a part of an evaluation, or the cost of that part.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EvalCost {
    /// Number of samples held at the end of the part.
    held: u64,
    /// Maximum number of samples held at one time during the part.
    peak: u64,
    /// Number of samples read and passed to operators.
    total: u64,
}

/// The counters of one query, shared by all its threads.
pub(crate) struct QueryAccount<'a> {
    budget: &'a Budget,
    cancel: &'a CancelToken,
    samples_max: u64,
    series: SeriesLimit,
    held: AtomicU64,
    peak: AtomicU64,
    total: AtomicU64,
    /// The losses of all selections that the query reads.
    losses: Mutex<Vec<DataLossWarnings>>,
    /// Measures each plan node, if the query is analyzed.
    meter: Option<Arc<EvalMeter>>,
}

impl<'a> QueryAccount<'a> {
    /// Creates an account without any usage, with the limits of `options`.
    pub(crate) fn new(budget: &'a Budget, cancel: &'a CancelToken, options: &Options) -> Self {
        Self {
            budget,
            cancel,
            samples_max: options.samples_max,
            series: SeriesLimit::new(options.series_max),
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            total: AtomicU64::new(0),
            losses: Mutex::default(),
            meter: None,
        }
    }

    /// Measures each plan node with `meter`.
    pub(crate) fn with_meter(self, meter: Option<Arc<EvalMeter>>) -> Self {
        Self { meter, ..self }
    }

    /// Returns the meter of the query, if it is analyzed.
    pub(crate) fn meter(&self) -> Option<&Arc<EvalMeter>> {
        self.meter.as_ref()
    }

    /// Registers a selection that the query reads, so that its losses become warnings.
    pub(crate) fn register_selection(&self, selection: &dyn Selection) {
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        losses.push(selection.loss_warnings());
    }

    /// Returns the data that the selections could not return so far.
    pub(crate) fn losses(&self) -> DataLossWarnings {
        let all = DataLossWarnings::default();
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        losses.iter().for_each(|losses| all.add_all(losses));
        all
    }

    /// Returns an error if the query was canceled or its time has run out.
    pub(crate) fn check(&self) -> Result<(), PromqlError> {
        match self.cancel.reason() {
            None => Ok(()),
            Some(reason) => Err(stop_error(reason)),
        }
    }

    /// Returns the cancel flag of the query, for long computations that check it themselves.
    pub(crate) fn cancel(&self) -> &CancelToken {
        self.cancel
    }

    /// Adds `samples` to the held samples. Fails if the query exceeds its limit.
    pub(crate) fn hold_samples(&self, samples: u64) -> Result<(), PromqlError> {
        let held = self.held.fetch_add(samples, Ordering::Relaxed) + samples;
        self.peak.fetch_max(held, Ordering::Relaxed);
        self.check_samples(held)
    }

    /// Returns an error if `samples` exceed the limit of the query.
    pub(crate) fn check_samples(&self, samples: u64) -> Result<(), PromqlError> {
        if samples <= self.samples_max {
            Ok(())
        } else {
            // The text of Prometheus, with the numbers that Prometheus omits.
            Err(PromqlError::Limited(format!(
                "query processing would load too many samples into memory in query execution: \
             {samples} samples, limit {}",
                self.samples_max
            )))
        }
    }

    /// Records that `samples` additional samples are held temporarily. Fails if the query exceeds
    /// its limit.
    pub(crate) fn record_peak(&self, samples: u64) -> Result<(), PromqlError> {
        self.hold_samples(samples)?;
        self.held.fetch_sub(samples, Ordering::Relaxed);
        Ok(())
    }

    /// Subtracts samples that are no longer held, because their rows were replaced by others.
    pub(crate) fn release(&self, samples: u64) {
        self.held
            .fetch_sub(samples.min(self.held()), Ordering::Relaxed);
    }

    /// Returns the number of samples that the query holds now.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Sets the held samples after an operator has released its input: the number `before` its
    /// evaluation plus its `output`.
    pub(crate) fn settle_held(&self, before: u64, output: u64) -> Result<(), PromqlError> {
        self.held.store(before, Ordering::Relaxed);
        self.hold_samples(output)
    }

    /// Adds samples that were read and passed to an operator.
    pub(crate) fn count_read(&self, samples: u64) {
        self.total.fetch_add(samples, Ordering::Relaxed);
    }

    /// Returns the number of samples that the query has read so far.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Sets the number of samples read, because a part of an evaluation may count several times or
    /// not at all.
    pub(crate) fn set_total(&self, samples: u64) {
        self.total.store(samples, Ordering::Relaxed);
    }

    /// Starts to measure the cost of a part of an evaluation. [`QueryAccount::cost_since`] ends the
    /// measurement.
    pub(crate) fn begin_cost(&self) -> EvalCost {
        let held = self.held();
        EvalCost {
            held,
            peak: self.peak.swap(held, Ordering::Relaxed),
            total: self.total(),
        }
    }

    /// Returns the cost since `mark`, which [`QueryAccount::begin_cost`] returned. Calls must be
    /// properly nested.
    pub(crate) fn cost_since(&self, mark: EvalCost) -> EvalCost {
        let peak = self.peak.fetch_max(mark.peak, Ordering::Relaxed);
        EvalCost {
            held: self.held().saturating_sub(mark.held),
            peak: peak.saturating_sub(mark.held),
            total: self.total().saturating_sub(mark.total),
        }
    }

    /// Adds the same cost again, for a value that is reused. Fails if the query exceeds its limit
    /// on samples.
    pub(crate) fn repeat_cost(&self, cost: &EvalCost) -> Result<(), PromqlError> {
        self.record_peak(cost.peak)?;
        self.count_read(cost.total);
        self.hold_samples(cost.held)
    }

    /// Returns the counter of the series that look-ups find.
    pub(crate) fn series_limit(&self) -> &SeriesLimit {
        &self.series
    }

    /// Reserves memory in the budget of the query. Fails with [`PromqlError::Limited`] if the
    /// budget is exceeded.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reservation, PromqlError> {
        self.budget
            .reserve(bytes)
            .map_err(|e| PromqlError::Limited(e.message))
    }

    /// Returns the statistics of the query so far: samples read, and peaks of samples and bytes.
    pub(crate) fn stats(&self) -> QueryStats {
        QueryStats {
            samples_total: self.total(),
            samples_peak: self.peak.load(Ordering::Relaxed),
            bytes_peak: self.budget.peak_bytes() as u64,
        }
    }
}

fn stop_error(reason: CancelReason) -> PromqlError {
    match reason {
        CancelReason::Canceled => {
            PromqlError::Canceled("query was canceled in expression evaluation".into())
        }
        CancelReason::Timeout => {
            PromqlError::Timeout("query timed out in expression evaluation".into())
        }
    }
}

/// Grows a reservation by `bytes`. Must be called before the memory is allocated.
pub(crate) fn grow(memory: &mut Reservation, bytes: usize) -> Result<(), PromqlError> {
    memory
        .grow(bytes)
        .map_err(|e| PromqlError::Limited(e.message))
}

/// Grows a reservation to `bytes`. Does nothing if it is already larger.
pub(crate) fn grow_to(memory: &mut Reservation, bytes: usize) -> Result<(), PromqlError> {
    grow(memory, bytes.saturating_sub(memory.bytes()))
}

/// Converts an error of the store to an error of the query.
pub(crate) fn storage_error(error: Error) -> PromqlError {
    match error.kind {
        ErrorKind::Canceled => stop_error(CancelReason::Canceled),
        ErrorKind::Timeout => stop_error(CancelReason::Timeout),
        ErrorKind::Limited => PromqlError::Limited(error.message),
        kind => PromqlError::Storage(Error::new(
            kind,
            format!("expanding series: {}", error.message),
        )),
    }
}
