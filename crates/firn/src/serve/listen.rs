//! Sockets: from `--listen` to bound addresses.

use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// Binds `address`: `host:port`, or `:port` for every interface.
pub async fn bind(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        None => TcpListener::bind(address).await,
        // One IPv6 socket serves both families, unless the machine has no IPv6.
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            Err(e) if e.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(format!("0.0.0.0:{port}")).await
            }
            outcome => outcome,
        },
    }
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
