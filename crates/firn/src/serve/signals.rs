//! Requests from outside to stop or reload: signals, and the lifecycle endpoints.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// To end cleanly.
    Stop,
    /// To read the config again.
    Reload,
}

/// The signals that the process listens to. While this exists none of them ends the process.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Starts listening.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. May be dropped while it waits without losing one.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
            _ = self.hangup.recv() => Wish::Reload,
        }
    }

    /// Waits for the next wish to stop.
    pub async fn stop(&mut self) {
        while self.next().await != Wish::Stop {}
    }
}
