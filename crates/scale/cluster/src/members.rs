//! The members of a cluster as one node sees them, and the partitions that this node should lead.
//!
//! ```text
//! reports of other nodes -> MemberTable -> members that are alive, leader of each partition
//!                               |
//!                      plan (now, own state) -> take over | hand off
//! ```
//!
//! Nodes exchange reports every [`EXCHANGE_INTERVAL`]: their name, the partitions that they lead,
//! and the reports of the members that they have heard from, so that a lost link between two nodes
//! is bridged by a third one. A node takes over a partition that no live member
//! claims. The member with the fewest partitions is chosen; all nodes choose the same one from the
//! same reports.
//!
//! Invariant: reports only decide who tries. Two nodes that try at once, a report that is late, or
//! one that is wrong cost time, never a sample, because the log of a partition admits one writer
//! ([`crate::log`]). This module is a pure state machine: the caller passes instants and sends the
//! reports.

mod plan;
mod report;
mod table;
#[cfg(test)]
mod tests;

pub use plan::MemberAction;
pub use report::{NodeReport, PartitionReport, PartitionStage, ReportError, SeenMember};
pub use table::{KnownMember, MemberConflict, MemberTable, OwnMember};

use std::time::Duration;

/// The interval at which a node exchanges reports with each peer.
pub const EXCHANGE_INTERVAL: Duration = Duration::from_millis(500);

/// The silence after which a member is dead: neither this node nor a peer of it has heard from it.
pub const DEAD_AFTER: Duration = Duration::from_secs(3);

/// The silence after which a member is dead if no process listens at its address: more than two
/// intervals of reports, so that a report under way arrives before.
const REFUSED_DEAD_AFTER: Duration = Duration::from_millis(1_200);

/// The silence after which a later process with the name of a member replaces it: more than two
/// intervals of reports. A live member keeps its partitions until the later process ends.
const REPLACED_AFTER: Duration = Duration::from_millis(1_200);

/// The time for which a member must be alive before partitions are handed to it.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(30);

/// The time for which an unowned partition waits for the chosen member before the next one tries.
const NEXT_CHOICE_AFTER: Duration = Duration::from_secs(15);

/// The first pause after another node took over a partition, doubled by each further loss.
const LOST_PAUSE: Duration = Duration::from_secs(10);

/// The longest pause after a loss.
const LOST_PAUSE_MAX: Duration = Duration::from_secs(300);

/// The time after which another live process with the name of this node is a conflict.
const CONFLICT_AFTER: Duration = Duration::from_secs(10);
