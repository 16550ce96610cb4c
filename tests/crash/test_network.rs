//! A network of the test's own: a namespace for each node and one for the clients, on a bridge.
//!
//! ```text
//! clients 10.231.77.254 -- bridge -- node a .1, node b .2, node c .3
//! ```
//!
//! A direction is cut by a wrong hardware address: no interface gets the frames, as on a broken
//! link.

use std::process::Command;

/// The first three numbers of all addresses.
const NETWORK: &str = "10.231.77";

/// A hardware address that no interface has.
const ABSENT_INTERFACE: &str = "02:00:00:00:00:99";

/// The namespaces, which [`TestNetwork::delete`] removes.
pub struct TestNetwork {
    name: String,
    nodes: usize,
}

impl TestNetwork {
    /// Creates the network. Returns `None`, and prints the reason, where that is not allowed.
    pub fn create(nodes: usize) -> Option<Self> {
        let network = Self::named(format!("firn-{}", std::process::id()), nodes);
        match network.build() {
            Ok(()) => Some(network),
            Err(text) => {
                network.delete();
                println!("skipped: no network namespaces: {text}");
                None
            }
        }
    }

    /// Returns the network of this name, which another process created and deletes.
    pub fn named(name: String, nodes: usize) -> Self {
        Self { name, nodes }
    }

    fn build(&self) -> Result<(), String> {
        let hub = self.hub();
        run(&["netns", "add", &hub])?;
        run(&["-n", &hub, "link", "add", "br0", "type", "bridge"])?;
        let clients = format!("{NETWORK}.254/24");
        run(&["-n", &hub, "addr", "add", &clients, "dev", "br0"])?;
        for link in ["lo", "br0"] {
            run(&["-n", &hub, "link", "set", link, "up"])?;
        }
        for index in 0..self.nodes {
            let (node, port) = (self.node(index), format!("port{index}"));
            let address = format!("{}/24", address(index));
            run(&["netns", "add", &node])?;
            let pair = ["type", "veth", "peer", "name", &port, "netns", &hub];
            run(&[&["-n", &node, "link", "add", "eth0"][..], &pair].concat())?;
            run(&["-n", &hub, "link", "set", &port, "master", "br0", "up"])?;
            run(&["-n", &node, "addr", "add", &address, "dev", "eth0"])?;
            for link in ["lo", "eth0"] {
                run(&["-n", &node, "link", "set", link, "up"])?;
            }
        }
        Ok(())
    }

    /// Returns the name of the network.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the namespace of the clients.
    pub fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    fn node(&self, index: usize) -> String {
        format!("{}-{index}", self.name)
    }

    /// Returns the command in the namespace of a node. An argument with a loopback address gets the
    /// address of the node.
    pub fn enter(&self, index: usize, command: &Command) -> Command {
        let mut entered = Command::new("ip");
        entered.args(["netns", "exec", &self.node(index)]);
        entered.arg(command.get_program());
        for argument in command.get_args() {
            match argument.to_str() {
                Some("127.0.0.1:0") => entered.arg(format!("{}:0", address(index))),
                _ => entered.arg(argument),
            };
        }
        entered
    }

    /// Drops what one node sends to another one.
    pub fn cut(&self, from: usize, to: usize) {
        let to = address(to);
        let neighbour = [
            "neigh",
            "replace",
            &to,
            "lladdr",
            ABSENT_INTERFACE,
            "dev",
            "eth0",
        ];
        let node = self.node(from);
        run(&[&["-n", &node][..], &neighbour, &["nud", "permanent"]].concat()).unwrap();
    }

    /// Ends [`TestNetwork::cut`].
    pub fn heal(&self, from: usize, to: usize) {
        let (node, to) = (self.node(from), address(to));
        run(&["-n", &node, "neigh", "del", &to, "dev", "eth0"]).unwrap();
    }

    /// Deletes the namespaces.
    pub fn delete(&self) {
        let nodes = (0..self.nodes).map(|index| self.node(index));
        for name in nodes.chain([self.hub()]) {
            // It may not exist.
            let _ = run(&["netns", "del", &name]);
        }
    }
}

/// Returns the address of a node.
pub fn address(index: usize) -> String {
    format!("{NETWORK}.{}", index + 1)
}

/// Runs `ip` with these arguments. Returns its error.
fn run(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output();
    let output = output.map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(text)
}
