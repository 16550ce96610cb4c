//! Sockets of the server: binds the addresses of `--listen` and runs the tasks that serve them.

use super::locks::{WebConfigHolder, wrap_server};
use firn_server::ServerApp;
use firn_server::tls::TlsListener;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpSocket, lookup_host};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::{info, warn};

/// Connections that may wait to be accepted: two per connection that may be open by default. For a
/// further client the connection times out. `net.core.somaxconn` may lower this limit.
const BACKLOG: u32 = 1024;

/// Error of binding a listening address, which ends the start. Its text contains the address and,
/// where there is any, advice for the user.
#[derive(Debug, thiserror::Error)]
#[error("listen on {address}: {}{}", error, describe_remedy(error))]
pub struct ListenError {
    address: String,
    error: io::Error,
}

/// Returns advice for a user whose address cannot be bound.
fn describe_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; stop the process that listens there, or choose another address with --listen \
             HOST:PORT"
        }
        io::ErrorKind::AddrNotAvailable => {
            "; this machine does not have the address: choose another one with --listen HOST:PORT"
        }
        io::ErrorKind::PermissionDenied => {
            "; ports below 1024 need privileges: choose another one with --listen HOST:PORT"
        }
        _ => "",
    }
}

/// Protection of the listening addresses by TLS and authentication, which determines the warnings
/// at the start.
#[derive(Clone, Copy, Debug)]
pub struct ListenerProtection {
    /// True if connections use TLS.
    pub has_tls: bool,
    /// True if requests need credentials, or connections a client certificate.
    pub asks_for_credentials: bool,
}

impl ListenerProtection {
    /// Returns the protection that is configured in `locks` now.
    pub fn from_web_config(locks: &WebConfigHolder) -> Self {
        Self {
            has_tls: locks.has_tls(),
            asks_for_credentials: locks.requires_credentials(),
        }
    }
}

/// Binds all `addresses` and logs them. Warns if other machines can reach an address without
/// protection.
pub async fn bind_all(
    addresses: &[String],
    locked: ListenerProtection,
) -> Result<Vec<TcpListener>, ListenError> {
    let mut listeners = Vec::with_capacity(addresses.len());
    for address in addresses {
        let failed = |error| ListenError {
            address: address.clone(),
            error,
        };
        let listener = bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        info!(address = %bound, "listening");
        if is_exposed(bound) {
            warn_of_exposure(bound, locked);
        }
        listeners.push(listener);
    }
    Ok(listeners)
}

fn warn_of_exposure(address: SocketAddr, locked: ListenerProtection) {
    match (locked.has_tls, locked.asks_for_credentials) {
        (true, true) => {}
        (false, false) => warn!(
            %address,
            "listening beyond the loopback address without TLS or authentication: everyone who \
             can reach this address can read and write all data"
        ),
        (true, false) => warn!(
            %address,
            "listening beyond the loopback address without authentication: everyone who can reach \
             this address can read and write all data"
        ),
        (false, true) => warn!(
            %address,
            "listening beyond the loopback address without TLS: credentials and data are sent \
             unencrypted"
        ),
    }
}

/// Tasks that serve the listening sockets, one per address. They run until
/// [`HttpServerTasks::stop`] is called.
pub struct HttpServerTasks {
    tasks: JoinSet<()>,
    stopping: watch::Sender<bool>,
    /// The first bound address, or `None` if the system does not report it.
    pub first: Option<SocketAddr>,
}

impl HttpServerTasks {
    /// Binds all addresses and serves `app` on them, with the TLS of `locks`.
    pub async fn start(
        addresses: &[String],
        locks: &Arc<WebConfigHolder>,
        app: &ServerApp,
    ) -> Result<Self, ListenError> {
        let listeners = bind_all(addresses, ListenerProtection::from_web_config(locks)).await?;
        let handshakes = locks.handshakes(&wrap_server(app));
        let stopping = watch::Sender::new(false);
        let first = listeners
            .first()
            .and_then(|listener| listener.local_addr().ok());
        let mut tasks = JoinSet::new();
        for listener in listeners {
            let mut stop = stopping.subscribe();
            let (app, handshakes) = (app.clone(), handshakes.clone());
            tasks.spawn(async move {
                let stopped = async move {
                    // An error means that the sender was dropped, which also stops the server.
                    let _ = stop.wait_for(|stop| *stop).await;
                };
                match handshakes {
                    None => firn_server::serve(listener, app, stopped).await,
                    Some(handshakes) => {
                        let listener = TlsListener::new(listener, handshakes);
                        firn_server::serve(listener, app, stopped).await;
                    }
                }
            });
        }
        Ok(Self {
            tasks,
            stopping,
            first,
        })
    }

    /// Returns the port of the first address, or 0 if it is unknown.
    pub fn first_port(&self) -> u16 {
        self.first.map_or(0, |address| address.port())
    }

    /// Stops accepting connections and requests, and waits for the requests in progress.
    pub async fn stop(self) {
        self.stopping.send_replace(true);
        self.tasks.join_all().await;
    }
}

/// Binds `address`, which is `host:port`, or `:port` for all interfaces.
async fn bind(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        None => bind_first(address).await,
        // One IPv6 socket serves both families, unless the machine has no IPv6.
        Some(port) => match bind_first(&format!("[::]:{port}")).await {
            Err(e) if e.kind() != io::ErrorKind::AddrInUse => {
                bind_first(&format!("0.0.0.0:{port}")).await
            }
            outcome => outcome,
        },
    }
}

/// Resolves `name` and binds its first address that can be bound.
async fn bind_first(name: &str) -> io::Result<TcpListener> {
    let mut outcome = Err(io::ErrorKind::AddrNotAvailable.into());
    for address in lookup_host(name).await? {
        outcome = bind_one(address);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn bind_one(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A restarted server must not wait for connections of its predecessor.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Returns whether other machines can reach `address`: it is not a loopback address.
fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_exposed_tells_loopback_from_the_rest() {
        for (address, want) in [
            ("127.0.0.1:1", false),
            ("127.8.8.8:1", false),
            ("[::1]:1", false),
            ("[::ffff:127.0.0.1]:1", false),
            ("0.0.0.0:1", true),
            ("[::]:1", true),
            ("10.0.0.1:1", true),
        ] {
            assert_eq!(is_exposed(address.parse().unwrap()), want, "{address}");
        }
    }
}
