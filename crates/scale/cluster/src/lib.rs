//! A partition whose log is remote: the log core, and the formats of the objects in the bucket.
//!
//! ```text
//! appends, replies -> log::LogCore -> requests, acknowledgements, replayed records
//!                         |
//!          segment, commit, checkpoint (bytes)   object_name (keys)   cluster_format (settings)
//! ```
//!
//! [`log::LogCore`] decides which object is created next, which appends are durable, whether this
//! process leads its partition, and whether it may answer strong reads. It is a pure state machine:
//! an engine sends its requests to a bucket and passes the replies back. Only [`engine`] and
//! [`node`] have IO; elsewhere instants and identifiers are arguments, and there is no randomness.
//! [`partitions`] makes the stores of several partitions one store, [`node`] joins a bucket and
//! opens them. [`members`] decides which node leads which partition, [`membership`] carries that
//! out, and [`forward`] passes writes and reads to the leaders.
//!
//! Invariants: an object is created once and never overwritten; a decoder of stored bytes never
//! panics, and never allocates more than a small multiple of its input. `docs/format/segment.md`
//! specifies the bytes, `docs/adr/0250-the-log-of-a-partition-is-a-list-of-created-objects.md` the
//! protocol.

pub mod audit;
mod block_objects;
mod bytes;
pub mod checkpoint;
pub mod cluster_format;
pub mod commit;
pub mod engine;
pub mod forward;
pub mod home;
pub mod ids;
pub mod log;
pub mod members;
pub mod membership;
pub mod node;
pub mod object_name;
pub mod partitions;
pub mod segment;
pub mod tenants;
