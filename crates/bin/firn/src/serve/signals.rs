//! Signals that stop the server or reload its config.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Action requested by a signal or by a lifecycle endpoint, which the main loop of the server
/// performs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalEvent {
    /// Stop cleanly: drain requests and close the store.
    Stop,
    /// Reload the config and the files that it names.
    Reload,
}

/// Listener for SIGTERM, SIGINT and SIGHUP. While it exists, none of these signals ends the process
/// by itself.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// Installs the handlers of the signals. Must be called inside a runtime.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal. Cancel safe: no signal is lost if the future is dropped.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.terminate.recv() => SignalEvent::Stop,
            _ = self.interrupt.recv() => SignalEvent::Stop,
            _ = self.hangup.recv() => SignalEvent::Reload,
        }
    }

    /// Waits for the next signal to stop and ignores requests to reload.
    pub async fn stop(&mut self) {
        while self.next().await != SignalEvent::Stop {}
    }
}
