//! Sockets: from `--listen` to bound addresses.

use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// Clients that may wait to be accepted: two for each connection that may be open by default.
/// Further ones are told by their system that nobody answers. `net.core.somaxconn` may lower it.
const BACKLOG: u32 = 1024;

/// Binds `address`: `host:port`, or `:port` for every interface.
pub async fn bind(address: &str) -> io::Result<TcpListener> {
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

/// Binds the first address behind a name that can be bound.
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
    // A server that starts again need not wait for connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whether other machines can reach `address`.
pub fn is_exposed(address: SocketAddr) -> bool {
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
