//! The clients of peers, one for each address.

use firn_model::sync::lock;
use firn_peer::{PeerClient, PeerFailure, PeerOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tokio::runtime::Handle;

/// The clients of peers, created when they are first used.
pub struct PeerDirectory {
    options: PeerOptions,
    runtime: Handle,
    clients: Mutex<BTreeMap<String, PeerClient>>,
    /// Addresses at which this node itself answered.
    own: Mutex<BTreeSet<String>>,
}

impl PeerDirectory {
    /// Creates an empty directory. Connections run on `runtime`.
    pub fn new(options: PeerOptions, runtime: Handle) -> Self {
        Self {
            options,
            runtime,
            clients: Mutex::default(),
            own: Mutex::default(),
        }
    }

    /// Returns the runtime of the connections.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Returns the client of the peer at `address`, `host:port`.
    ///
    /// # Errors
    ///
    /// The address is invalid, or the files of the TLS configuration are.
    pub fn client(&self, address: &str) -> Result<PeerClient, PeerFailure> {
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get(address) {
            return Ok(client.clone());
        }
        let client = PeerClient::new(address, &self.options, self.runtime.clone())?;
        clients.insert(address.to_owned(), client.clone());
        Ok(client)
    }

    /// Fails all requests to the peer at `address`, which is dead. Later requests connect again.
    pub(super) fn disconnect(&self, address: &str) {
        let client = lock(&self.clients).remove(address);
        if let Some(client) = client {
            client.disconnect();
        }
    }

    /// Drops the clients of all addresses but `kept`.
    pub(super) fn retain(&self, kept: &BTreeSet<String>) {
        lock(&self.clients).retain(|address, _| kept.contains(address));
    }

    /// Notes that this node itself answers at `address`.
    pub(super) fn note_own_address(&self, address: &str) {
        lock(&self.own).insert(address.to_owned());
    }

    /// Returns whether this node itself answered at `address`.
    pub(super) fn is_own_address(&self, address: &str) -> bool {
        lock(&self.own).contains(address)
    }
}
