//! Checkpoints: the state of a partition after one of its COMMITs, from which a takeover begins.
//!
//! ```text
//! state/<partition>/<position> = magic, 8 bytes | version u32 | cluster, 16 bytes | partition u32
//!     | epoch u64 | position u64 | fields of a commit | block* (counted) | catalogue (prefixed)
//!     | crc32c of all bytes before
//! ```
//!
//! All but the catalogue is a function of the log up to its position, and the catalogues of two
//! writers contain the series of the same records. So the first object under a name counts, and the
//! newest one is the current one. Invariant: decoding accepts only bytes that encoding wrote.

use crate::bytes::{ByteReader, push_prefixed};
use crate::commit::{
    BlockState, StateFields, StateFormatError, push_blocks, push_state_fields, read_blocks,
    read_state_fields,
};
use crate::ids::{ClusterId, Epoch, PartitionId};
use firn_model::log::LogPosition;

const MAGIC: [u8; 8] = *b"FIRNCKP\0";

const VERSION: u32 = 1;

const DAMAGED: StateFormatError = StateFormatError::Damaged { what: "checkpoint" };

/// The content of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The cluster that the checkpoint belongs to.
    pub cluster: ClusterId,
    /// The partition that it belongs to.
    pub partition: PartitionId,
    /// The epoch of its last COMMIT.
    pub epoch: Epoch,
    /// The position of its last COMMIT, which its key repeats.
    pub position: LogPosition,
    /// The block list after that COMMIT, and the begin of a replay.
    pub state: BlockState,
    /// The catalogue of all series of the log before the begin of a replay. Its bytes belong to the
    /// store.
    pub catalogue: Vec<u8>,
}

impl Checkpoint {
    /// Encodes the object.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(128 + self.catalogue.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.cluster.0.to_be_bytes());
        bytes.extend_from_slice(&self.partition.0.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
        bytes.extend_from_slice(&self.position.0.to_le_bytes());
        let fields = StateFields {
            version: self.state.version,
            cut: self.state.cut,
            late_through: self.state.late_through,
            replay_from: self.state.replay_from,
        };
        push_state_fields(&fields, &mut bytes);
        push_blocks(&self.state.blocks, &mut bytes);
        push_prefixed(&self.catalogue, &mut bytes);
        let crc = crc32c::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes an object.
    ///
    /// # Errors
    ///
    /// [`StateFormatError`] for bytes of another version or of none. The caller compares cluster,
    /// partition and position with those that it expects.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateFormatError> {
        let (body, crc) = bytes.split_last_chunk().ok_or(DAMAGED)?;
        if crc32c::crc32c(body).to_le_bytes() != *crc || !body.starts_with(&MAGIC) {
            return Err(DAMAGED);
        }
        let mut reader = ByteReader::new(&body[MAGIC.len()..]);
        let version = reader.u32().ok_or(DAMAGED)?;
        if version != VERSION {
            return Err(StateFormatError::UnknownVersion {
                what: "checkpoint",
                version,
                expected: VERSION,
            });
        }
        let checkpoint = read(&mut reader).ok_or(DAMAGED)?;
        reader.is_at_end().then_some(checkpoint).ok_or(DAMAGED)
    }
}

fn read(reader: &mut ByteReader<'_>) -> Option<Checkpoint> {
    let cluster = ClusterId(reader.id()?);
    let partition = PartitionId(reader.u32()?);
    let epoch = Epoch(reader.u64()?);
    let position = LogPosition(reader.u64()?);
    let fields = read_state_fields(reader)?;
    Some(Checkpoint {
        cluster,
        partition,
        epoch,
        position,
        state: BlockState {
            version: fields.version,
            replay_from: fields.replay_from,
            cut: fields.cut,
            late_through: fields.late_through,
            blocks: read_blocks(reader)?,
        },
        catalogue: reader.prefixed()?.to_vec(),
    })
}
