//! Strong reads: a read waits until this process has confirmed that it leads the partition.
//!
//! One confirmation before the look-up is sufficient. No other process can have acknowledged a
//! record or answered a strong read before it, so the look-up after it finds all records that were
//! acknowledged before the read arrived. A record that a new leader acknowledges later is
//! concurrent with the read.

use super::bucket_log::BucketLog;
use super::state::LeaseRequestState;
use crate::ids::LogTicket;
use crate::log::LogEvent;
use firn_model::error::{Error, ErrorKind};
use firn_model::sync::lock;
use std::time::Duration;

/// A request for the permission to answer a strong read. Created by [`BucketLog::request_lease`].
/// Several logs may be requested first and waited for afterwards.
#[derive(Debug)]
#[must_use = "a read is permitted only after the wait"]
pub struct LeaseRequest(Option<LogTicket>);

impl BucketLog {
    /// Requests the permission to answer a strong read. With a valid lease the read is permitted at
    /// once; otherwise the core sends a HEAD of its next key.
    pub fn request_lease(&self) -> LeaseRequest {
        let now = self.0.now();
        let mut state = lock(&self.0.state);
        if state.core.is_leased(now) {
            return LeaseRequest(None);
        }
        state.reads_begun += 1;
        let ticket = LogTicket(state.reads_begun);
        state.reads.insert(ticket, LeaseRequestState::Waiting);
        drop(state);
        self.0.step(LogEvent::Read { ticket });
        LeaseRequest(Some(ticket))
    }

    /// Waits for a permission, until `deadline` on the clock of the options.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Unavailable`]: this process does not lead the partition, or the bucket has not
    /// confirmed it before the deadline.
    pub fn await_lease(&self, request: LeaseRequest, deadline: Duration) -> Result<(), Error> {
        let Some(ticket) = request.0 else {
            return Ok(());
        };
        let mut state = lock(&self.0.state);
        loop {
            // An ended log passes nothing to the core, so that no outcome follows.
            let is_over = state.is_over() || self.0.now() >= deadline;
            match state.reads.get(&ticket) {
                Some(LeaseRequestState::Waiting) if !is_over => state = self.wait(state),
                outcome => {
                    let is_granted = outcome == Some(&LeaseRequestState::Granted);
                    state.reads.remove(&ticket);
                    drop(state);
                    return if is_granted {
                        Ok(())
                    } else {
                        Err(self.unconfirmed())
                    };
                }
            }
        }
    }

    /// Returns the time on the clock of the options, for deadlines.
    pub fn now(&self) -> Duration {
        self.0.now()
    }

    fn unconfirmed(&self) -> Error {
        let partition = self.0.options.core.partition;
        let reason = self.ended().unwrap_or_else(|| {
            let state = lock(&self.0.state);
            let reason = state.trouble.reason();
            if reason.is_empty() {
                "the bucket has not answered in time".to_owned()
            } else {
                reason.to_owned()
            }
        });
        let text = format!(
            "partition {partition} cannot confirm that this node leads it, so that its answer \
             might miss samples: {reason}"
        );
        Error::new(ErrorKind::Unavailable, text)
    }
}
