//! Makes pending bodies durable, a group at a time.

use super::format::{HEADER_BYTES, header, push_frame};
use super::segments::BodyLogSegment;
use super::{BodyLogFault, BodyLogShared, BodyLogState, FAULT_PAUSE, PendingBody, format};
use bytes::Bytes;
use firn_model::env::{DiskFile, OpenMode};
use firn_model::sync::lock;
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Maximum length of a group in bytes; further bodies wait for the next one. A disk writes this in
/// about 10 ms.
const GROUP_BYTES_MAX: usize = 8 << 20;

impl BodyLogShared {
    /// Makes groups durable until no body is pending.
    pub(super) fn commit(&self) {
        loop {
            let (group, (segment, file)) = {
                let mut state = lock(&self.state);
                let group = take_group(&mut state.pending);
                if group.is_empty() {
                    state.is_committing = false;
                    return;
                }
                (group, self.target(&state))
            };
            let bytes = group
                .iter()
                .map(|pending| format::frame_bytes(&pending.write));
            let mut frames = Vec::with_capacity(bytes.sum());
            for pending in &group {
                push_frame(&mut frames, pending.time_ms, &pending.write);
            }
            let outcome = self.write(segment, file, &frames);
            let told = match self.record_group_result(outcome, frames.into()) {
                None => Ok(()),
                Some(message) => Err(message),
            };
            for pending in group {
                (pending.done)(told.clone());
            }
        }
    }

    /// Returns the position and file for the next group: the open segment, or a new one.
    fn target(&self, state: &BodyLogState) -> (BodyLogSegment, Option<Arc<dyn DiskFile>>) {
        let end = *self.end.borrow();
        let fresh = BodyLogSegment { start: end, end };
        match (state.segments.back(), &state.file) {
            (Some(last), Some(file)) if last.end - last.start < self.segment_bytes => {
                (*last, Some(file.clone()))
            }
            _ => (fresh, None),
        }
    }

    /// Writes and syncs a group. The remains of a failed write are truncated if possible; otherwise
    /// they are behind the end of the segment and never read.
    fn write(
        &self,
        segment: BodyLogSegment,
        file: Option<Arc<dyn DiskFile>>,
        frames: &[u8],
    ) -> io::Result<(BodyLogSegment, Arc<dyn DiskFile>)> {
        let disk = &self.env.disk;
        let Some(file) = file else {
            let path = self.path(segment.start);
            let created = self.create(&path, segment, frames);
            if created.is_err() {
                // Best effort: an existing file of this name is removed before it is created again.
                let _ = disk.remove_file(&path);
            }
            return created.map(|file| (segment, file));
        };
        let offset = HEADER_BYTES as u64 + segment.end - segment.start;
        let written = file
            .write_all_at(offset, frames)
            .and_then(|()| file.sync_data());
        match written {
            Ok(()) => Ok((segment, file)),
            Err(e) => {
                let _ = file.set_len(offset);
                Err(e)
            }
        }
    }

    fn create(
        &self,
        path: &Path,
        segment: BodyLogSegment,
        frames: &[u8],
    ) -> io::Result<Arc<dyn DiskFile>> {
        let disk = &self.env.disk;
        let file = match disk.open(path, OpenMode::CreateNew) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                disk.remove_file(path)?;
                disk.open(path, OpenMode::CreateNew)?
            }
            opened => opened?,
        };
        let bytes = [&header(segment.start)[..], frames].concat();
        file.write_all_at(0, &bytes)?;
        file.sync_data()?;
        disk.sync_dir(&self.dir)?;
        Ok(file)
    }

    /// Records the result of a group. Returns the error if it is not durable.
    fn record_group_result(
        &self,
        outcome: io::Result<(BodyLogSegment, Arc<dyn DiskFile>)>,
        frames: Bytes,
    ) -> Option<String> {
        let mut state = lock(&self.state);
        match outcome {
            Ok((mut segment, file)) => {
                let is_known = state
                    .segments
                    .back()
                    .is_some_and(|s| s.start == segment.start);
                if is_known {
                    state.segments.pop_back();
                }
                let start = segment.end;
                segment.end += frames.len() as u64;
                state.segments.push_back(segment);
                state.remember(start, frames);
                state.file = Some(file);
                if state.fault.take().is_some() {
                    tracing::info!(dir = %self.dir.display(), "storing bodies works again");
                }
                self.end.send_replace(segment.end);
                None
            }
            Err(e) => {
                state.file = None;
                let message = format!("bodies cannot be stored in {}: {e}", self.dir.display());
                if state.fault.is_none() {
                    tracing::error!(
                        dir = %self.dir.display(),
                        error = %e,
                        "failed to store bodies"
                    );
                }
                state.fault = Some(BodyLogFault {
                    retry_at: self.env.clock.monotonic() + FAULT_PAUSE,
                    message: message.clone(),
                });
                Some(message)
            }
        }
    }
}

/// Takes the oldest pending bodies, as many as fit into a group; at least one.
fn take_group(pending: &mut VecDeque<PendingBody>) -> Vec<PendingBody> {
    let mut bytes = 0;
    let is_next = |pending: &&PendingBody| {
        let fits = bytes == 0 || bytes + pending.write.body.len() <= GROUP_BYTES_MAX;
        bytes += pending.write.body.len().max(1);
        fits
    };
    let count = pending.iter().take_while(is_next).count();
    pending.drain(..count).collect()
}
