//! The segment files of the log: their names, their entries, and their recovery at a restart.

use super::format::{BodyLogEntry, BodyLogFrame, HEADER_BYTES, header, read_frame};
use bytes::Bytes;
use firn_model::env::{DiskFile, Env, OpenMode};
use std::collections::VecDeque;
use std::io;
use std::path::Path;

/// Number of bytes that a target reads at a time, unless a single body is longer.
pub(super) const CHUNK_BYTES: u64 = 1 << 20;

/// Suffix of the names of segments, behind the start position in decimal.
const SUFFIX: &str = ".bodies";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyLogSegment {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Returns whether a file with this name is a segment.
pub fn is_segment(name: &Path) -> bool {
    name.to_str().is_some_and(|name| name.ends_with(SUFFIX))
}

pub(super) fn file_name(start: u64) -> String {
    format!("{start:020}{SUFFIX}")
}

pub(super) fn read_at(file: &dyn DiskFile, offset: u64, bytes: u64) -> io::Result<Bytes> {
    let mut into = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let read = file.read_at(offset, &mut into)?;
    into.truncate(read);
    Ok(into.into())
}

/// Returns the complete frames at the start of `bytes`, which is at position `at`, and the frame
/// that follows them.
pub(super) fn entries_of(bytes: &Bytes, at: u64) -> (Vec<BodyLogEntry>, BodyLogFrame) {
    let mut entries = Vec::new();
    let mut offset = 0;
    loop {
        match read_frame(bytes, offset) {
            BodyLogFrame::Whole(time_ms, write, frame_bytes) => {
                entries.push(BodyLogEntry {
                    at: at + offset as u64,
                    end: at + (offset + frame_bytes) as u64,
                    time_ms,
                    write,
                });
                offset += frame_bytes;
            }
            rest => return (entries, rest),
        }
    }
}

/// Finds the segments in `dir`. Only the last one may have a torn end; if it contains no complete
/// frame, it is removed.
pub(super) fn find_segments(env: &Env, dir: &Path) -> io::Result<VecDeque<BodyLogSegment>> {
    let mut starts: Vec<u64> = Vec::new();
    for name in env.disk.list(dir)? {
        let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
        starts.extend(stem.and_then(|stem| stem.parse::<u64>().ok()));
    }
    starts.sort_unstable();
    while let Some(last) = starts.last().copied() {
        let path = dir.join(file_name(last));
        let file = env.disk.open(&path, OpenMode::Read)?;
        let end = find_complete_end(&*file, last)?;
        let torn = file.len()?.saturating_sub(HEADER_BYTES as u64 + end - last);
        if torn > 0 {
            let path = path.display();
            tracing::warn!(%path, bytes = torn, "ignoring data after the last complete body");
        }
        if end > last {
            let ends = starts.iter().skip(1).copied().chain([end]);
            let segment = |(start, end): (&u64, u64)| BodyLogSegment { start: *start, end };
            return Ok(starts.iter().zip(ends).map(segment).collect());
        }
        env.disk.remove_file(&path)?;
        starts.pop();
    }
    Ok(VecDeque::new())
}

/// Returns the end position of the last complete frame in the segment that begins at `start`.
fn find_complete_end(file: &dyn DiskFile, start: u64) -> io::Result<u64> {
    let mut head = [0; HEADER_BYTES];
    if file.read_at(0, &mut head)? < HEADER_BYTES || head != header(start) {
        return Ok(start);
    }
    let mut at = start;
    loop {
        let offset = HEADER_BYTES as u64 + at - start;
        let mut bytes = read_at(file, offset, CHUNK_BYTES)?;
        if let BodyLogFrame::Short(whole) = read_frame(&bytes, 0)
            && whole > bytes.len()
            && offset + whole as u64 <= file.len()?
        {
            bytes = read_at(file, offset, whole as u64)?;
        }
        match entries_of(&bytes, at).0.last() {
            Some(last) => at = last.end,
            None => return Ok(at),
        }
    }
}
