//! TLS connections of the listener. [`firn_x509::listener`] builds their configuration.

mod listener;

pub use listener::{TlsConfigs, TlsListener};
