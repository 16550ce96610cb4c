//! What a query uses: samples, bytes and time. Every operator asks here before it goes on.
//!
//! Samples are counted as upstream counts them, so that the limit means the same: points that
//! operators hold at one time, whether Firn materialises them or not. Bytes are reserved in the
//! query's [`Budget`] before they are allocated. Cancellation is checked once a series, or more
//! often where a series is much work: a check is one load.

use crate::request::Options;
use crate::value::{QueryError, Stats};
use firn_model::budget::{Budget, Reservation};
use firn_model::cancel::{Cancel, Reason};
use firn_model::error::{Error, ErrorKind};
use firn_model::losses::Losses;
use firn_model::series_limit::SeriesLimit;
use firn_model::store::Selection;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// What was counted when part of an evaluation began, or what it counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Samples that are held at its end.
    held: u64,
    /// The most that were held at one time.
    peak: u64,
    /// Samples that were read.
    total: u64,
}

/// The counters of one query; shared by all its threads.
#[derive(Debug)]
pub(crate) struct Account<'a> {
    budget: &'a Budget,
    cancel: &'a Cancel,
    samples_max: u64,
    series: SeriesLimit,
    held: AtomicU64,
    peak: AtomicU64,
    total: AtomicU64,
    /// Of each selection that is read.
    losses: Mutex<Vec<Losses>>,
}

impl<'a> Account<'a> {
    /// An account that has used nothing.
    pub(crate) fn new(budget: &'a Budget, cancel: &'a Cancel, options: &Options) -> Self {
        Self {
            budget,
            cancel,
            samples_max: options.samples_max,
            series: SeriesLimit::new(options.series_max),
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            total: AtomicU64::new(0),
            losses: Mutex::default(),
        }
    }

    /// Says that the query reads from `selection`.
    pub(crate) fn reads_from(&self, selection: &dyn Selection) {
        let mut losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        losses.push(selection.losses());
    }

    /// What selections could not give so far.
    pub(crate) fn losses(&self) -> Losses {
        let all = Losses::default();
        let losses = self.losses.lock().unwrap_or_else(PoisonError::into_inner);
        losses.iter().for_each(|losses| all.add_all(losses));
        all
    }

    /// Fails once the query is canceled or out of time.
    pub(crate) fn check(&self) -> Result<(), QueryError> {
        match self.cancel.reason() {
            None => Ok(()),
            Some(reason) => Err(stopped(reason)),
        }
    }

    /// What says that the query is canceled or out of time.
    pub(crate) fn cancel(&self) -> &Cancel {
        self.cancel
    }

    /// Counts `samples` as held, or fails if the query may not hold so many.
    pub(crate) fn hold(&self, samples: u64) -> Result<(), QueryError> {
        let held = self.held.fetch_add(samples, Ordering::Relaxed) + samples;
        self.peak.fetch_max(held, Ordering::Relaxed);
        self.admit(held)
    }

    /// Fails if the query may not hold `samples`.
    pub(crate) fn admit(&self, samples: u64) -> Result<(), QueryError> {
        match samples <= self.samples_max {
            true => Ok(()),
            // Upstream's text, and the numbers that it leaves out.
            false => Err(QueryError::Limited(format!(
                "query processing would load too many samples into memory in query execution: \
                 {samples} samples, limit {}",
                self.samples_max
            ))),
        }
    }

    /// Notes that `samples` more are held for a moment, or fails if the query may not hold so many.
    pub(crate) fn glimpse(&self, samples: u64) -> Result<(), QueryError> {
        self.hold(samples)?;
        self.held.fetch_sub(samples, Ordering::Relaxed);
        Ok(())
    }

    /// Counts samples as given up: those of rows that others were made of.
    pub(crate) fn release(&self, samples: u64) {
        self.held
            .fetch_sub(samples.min(self.held()), Ordering::Relaxed);
    }

    /// Samples held now.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Sets what is held after an operator gave up its input: `before` plus its `output`.
    pub(crate) fn settle(&self, before: u64, output: u64) -> Result<(), QueryError> {
        self.held.store(before, Ordering::Relaxed);
        self.hold(output)
    }

    /// Counts samples that were read and handed to an operator.
    pub(crate) fn count_read(&self, samples: u64) {
        self.total.fetch_add(samples, Ordering::Relaxed);
    }

    /// Samples read so far.
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Sets the number of samples read: part of an evaluation may count for more or for nothing.
    pub(crate) fn set_total(&self, samples: u64) {
        self.total.store(samples, Ordering::Relaxed);
    }

    /// Begins to count what part of an evaluation costs.
    pub(crate) fn begin(&self) -> Cost {
        let held = self.held();
        Cost {
            held,
            peak: self.peak.swap(held, Ordering::Relaxed),
            total: self.total(),
        }
    }

    /// What was counted since `mark`, which [`Account::begin`] made.
    pub(crate) fn cost_since(&self, mark: Cost) -> Cost {
        let peak = self.peak.fetch_max(mark.peak, Ordering::Relaxed);
        Cost {
            held: self.held().saturating_sub(mark.held),
            peak: peak.saturating_sub(mark.held),
            total: self.total().saturating_sub(mark.total),
        }
    }

    /// Counts the same once more, or fails if the query may not hold so many samples.
    pub(crate) fn repeat(&self, cost: &Cost) -> Result<(), QueryError> {
        self.glimpse(cost.peak)?;
        self.count_read(cost.total);
        self.hold(cost.held)
    }

    /// Where look-ups count the series that they find.
    pub(crate) fn series(&self) -> &SeriesLimit {
        &self.series
    }

    /// Reserves memory.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reservation, QueryError> {
        self.budget
            .reserve(bytes)
            .map_err(|e| QueryError::Limited(e.message))
    }

    /// What was used.
    pub(crate) fn stats(&self) -> Stats {
        Stats {
            samples_total: self.total(),
            samples_peak: self.peak.load(Ordering::Relaxed),
            bytes_peak: self.budget.peak_bytes() as u64,
        }
    }
}

fn stopped(reason: Reason) -> QueryError {
    match reason {
        Reason::Canceled => {
            QueryError::Canceled("query was canceled in expression evaluation".into())
        }
        Reason::Timeout => QueryError::Timeout("query timed out in expression evaluation".into()),
    }
}

/// Grows a reservation before that much more is allocated.
pub(crate) fn grow(memory: &mut Reservation, bytes: usize) -> Result<(), QueryError> {
    memory
        .grow(bytes)
        .map_err(|e| QueryError::Limited(e.message))
}

/// Grows a reservation to `bytes`, if it is smaller.
pub(crate) fn grow_to(memory: &mut Reservation, bytes: usize) -> Result<(), QueryError> {
    grow(memory, bytes.saturating_sub(memory.bytes()))
}

/// A failure of the store as the query's error.
pub(crate) fn storage_error(error: Error) -> QueryError {
    match error.kind {
        ErrorKind::Canceled => stopped(Reason::Canceled),
        ErrorKind::Timeout => stopped(Reason::Timeout),
        ErrorKind::Limited => QueryError::Limited(error.message),
        kind => QueryError::Storage(Error::new(
            kind,
            format!("expanding series: {}", error.message),
        )),
    }
}
