//! A file, or a range of it, as a response body.
//!
//! Invariant: only one piece of the file is in memory. It is read on a blocking thread when the
//! client can receive it, and no thread is blocked between pieces. If the file was truncated
//! meanwhile, the connection is closed, because the announced length cannot be sent.

use axum::body::Bytes;
use http_body::{Frame, SizeHint};
use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::{JoinHandle, spawn_blocking};

/// Size of a piece in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// A response body with the content of a file from its current position. Alternates between reading
/// a piece and sending it.
pub(crate) struct FileBody {
    left: u64,
    state: FileReadState,
}

enum FileReadState {
    Idle(File),
    Busy(JoinHandle<io::Result<(File, Bytes)>>),
    Done,
}

impl FileBody {
    /// Creates a body with the next `bytes` bytes of `file`, which must be positioned.
    pub(crate) fn new(file: File, bytes: u64) -> Self {
        Self {
            left: bytes,
            state: FileReadState::Idle(file),
        }
    }
}

fn read(mut file: File, len: usize) -> io::Result<(File, Bytes)> {
    let mut piece = vec![0; len];
    file.read_exact(&mut piece)?;
    Ok((file, piece.into()))
}

impl http_body::Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        loop {
            match std::mem::replace(&mut this.state, FileReadState::Done) {
                FileReadState::Idle(file) if this.left > 0 => {
                    let most = PIECE_BYTES as u64;
                    let len = this.left.min(most) as usize;
                    this.state = FileReadState::Busy(spawn_blocking(move || read(file, len)));
                }
                FileReadState::Idle(_) | FileReadState::Done => return Poll::Ready(None),
                FileReadState::Busy(mut reading) => {
                    let Poll::Ready(read) = Pin::new(&mut reading).poll(cx) else {
                        this.state = FileReadState::Busy(reading);
                        return Poll::Pending;
                    };
                    let (file, piece) = read.map_err(io::Error::other)??;
                    this.left -= piece.len() as u64;
                    this.state = FileReadState::Idle(file);
                    return Poll::Ready(Some(Ok(Frame::data(piece))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
