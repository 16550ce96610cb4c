//! `tracing`: where spans go, checked as upstream checks it.

use super::http;
use super::read;
use super::remote::check_headers;
use firn_model::yaml::{Node, YamlError};
use std::path::Path;

/// Checks the section of a config that lies in `dir`, if there is one.
pub fn check_tracing(root: &Node, dir: &Path) -> Result<(), YamlError> {
    let Some(node) = root.get("tracing").filter(|section| !section.is_null()) else {
        return Ok(());
    };
    check_client(node)?;
    http::tls(node.get("tls_config"), dir)?;
    check_headers(
        node,
        "custom authorization header configuration is not yet supported",
    )?;
    if read::string(node, "endpoint").is_empty() {
        return Err(node.error("tracing endpoint must be set"));
    }
    match read::string(node, "compression").as_str() {
        "" | "gzip" => Ok(()),
        other => Err(node.error(format!(
            "invalid compression type {other} provided, valid options: gzip"
        ))),
    }
}

fn check_client(node: &Node) -> Result<(), YamlError> {
    match read::text(node, "client_type") {
        None | Some("http" | "grpc") => Ok(()),
        Some(other) => Err(node.error(format!(
            "expected tracing client type to be to be http or grpc, but got {other}"
        ))),
    }
}
