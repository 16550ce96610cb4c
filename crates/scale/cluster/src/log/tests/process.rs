//! A process of the model: a real log core, the requests that it waits for, and the records that it
//! has.

use super::world::{Content, Records};
use crate::ids::{LogTicket, SegmentSequence};
use crate::log::{HeadOutcome, LogCore, LogCoreOptions, LogRequest, LogState};
use firn_model::log::LogPosition;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A process with its log core.
#[derive(Clone, Debug)]
pub struct Process {
    pub core: LogCore,
    /// Requests on their way.
    pub requests: Vec<LogRequest>,
    /// The reply to a HEAD on its way.
    pub headed: Option<(SegmentSequence, HeadOutcome)>,
    /// Keys at which this takeover has created segments.
    pub created: u32,
    /// The records of the checkpoint, and those of the replay with their positions.
    pub covered: Records,
    pub replayed: Vec<(LogPosition, u8)>,
    /// The version of the last COMMIT of the replay.
    pub version: u64,
    /// Own records and COMMITs, acknowledged or not.
    pub own: Vec<(LogPosition, Content)>,
    /// Own records that were acknowledged.
    pub acked: Records,
    /// Reads that wait, with the records that they must show.
    pub reads: Vec<(LogTicket, Records)>,
    /// True if the core has an instant that is now.
    pub is_fresh: bool,
}

impl Process {
    pub fn new(options: &Arc<LogCoreOptions>) -> Self {
        Self {
            core: LogCore::new(options.clone()),
            requests: Vec::new(),
            headed: None,
            created: 0,
            covered: 0,
            replayed: Vec::new(),
            version: 0,
            own: Vec::new(),
            acked: 0,
            reads: Vec::new(),
            is_fresh: false,
        }
    }

    /// The records that a strong read shows.
    pub fn view(&self) -> Records {
        let replayed = self.replayed.iter().map(|(_, record)| 1 << record);
        replayed.fold(self.covered | self.acked, |all, bit| all | bit)
    }

    pub fn leads(&self) -> bool {
        matches!(
            self.core.state(),
            LogState::Leading { .. } | LogState::HandingOff
        )
    }
}

impl Hash for Process {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.core.state.hash(state);
        self.core.writer.hash(state);
        self.requests.hash(state);
        self.headed.hash(state);
        self.created.hash(state);
        self.covered.hash(state);
        self.replayed.hash(state);
        self.version.hash(state);
        self.own.hash(state);
        self.acked.hash(state);
        self.reads.hash(state);
    }
}
