//! Settings of the connections between nodes.
//!
//! Invariant: no secret is printed. Reading files is left to the callers.

use crate::tls::RenewedPeerTls;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The version of the protocol. Nodes reject requests of other versions.
pub const PEER_PROTOCOL_VERSION: u16 = 2;

/// Default of [`PeerOptions::frame_bytes_max`].
pub const FRAME_BYTES_MAX: usize = 64 << 20;

/// The settings that all nodes of a cluster have in common, except their certificates.
#[derive(Clone, Debug)]
pub struct PeerOptions {
    /// The means by which nodes recognize each other.
    pub security: PeerSecurity,
    /// The identifier of the cluster. Nodes of other clusters are rejected.
    pub cluster: u128,
    /// The number of partitions. Nodes with another number are rejected.
    pub partitions: u32,
    /// Maximum size of a frame in bytes: of a part of a batch, or of an exchange. Longer answers of
    /// reads are split.
    pub frame_bytes_max: usize,
}

impl PeerOptions {
    /// Creates settings without security, which a server accepts only on a loopback address.
    pub fn new(cluster: u128, partitions: u32) -> Self {
        Self {
            security: PeerSecurity::default(),
            cluster,
            partitions,
            frame_bytes_max: FRAME_BYTES_MAX,
        }
    }
}

/// The means by which nodes recognize each other: a shared secret, certificates, or both. With
/// neither, any process that can connect is a peer.
#[derive(Clone, Debug, Default)]
pub struct PeerSecurity {
    /// The shared secret. It is not sent, but without certificates an observer of the network can
    /// repeat the keyed hash that is.
    pub secret: Option<PeerSecret>,
    /// Certificates of both sides. All connections then use TLS.
    pub tls: Option<PeerTls>,
}

impl PeerSecurity {
    /// Returns whether there is neither a secret nor a certificate.
    pub fn is_none(&self) -> bool {
        self.secret.is_none() && self.tls.is_none()
    }
}

/// A secret that all nodes have. Cloning is cheap.
#[derive(Clone)]
pub struct PeerSecret(Arc<[u8]>);

impl PeerSecret {
    /// Wraps the bytes of the secret, as they are in its file.
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Prints no bytes of the secret.
impl fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSecret")
    }
}

/// The PEM files of a node, which are read again for each new connection. A peer must have a
/// certificate of the same authorities, for the host by which it is addressed.
#[derive(Clone, Debug)]
pub struct PeerTls {
    /// The certificate of this node, followed by intermediate ones. It must be valid for servers
    /// and clients.
    pub cert_file: PathBuf,
    /// The private key of the certificate.
    pub key_file: PathBuf,
    /// The authorities that sign the certificates of peers.
    pub ca_file: PathBuf,
}

impl PeerTls {
    /// Reads the files and checks that they fit together. The error is a text for the user.
    pub fn check(&self) -> Result<(), String> {
        RenewedPeerTls::open(self).map(drop)
    }
}
