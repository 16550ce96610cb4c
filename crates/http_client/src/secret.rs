//! Secrets: read from where the settings say, each time that they are needed.

use super::settings::Secret;
use crate::named_files;
use firn_model::error::Error;

/// Reads a secret as it is.
pub(super) async fn bytes_of(secret: &Secret) -> Result<Vec<u8>, String> {
    match secret {
        Secret::Inline(text) => Ok(text.clone().into_bytes()),
        Secret::File(path) => named_files::read_aside(path)
            .await
            .map_err(|e| format!("unable to read file {}: {e}", path.display())),
    }
}

/// Reads a secret that is a text; the white space around that in a file does not count.
pub async fn reveal(secret: &Secret, what: &str) -> Result<String, Error> {
    let bytes = bytes_of(secret)
        .await
        .map_err(|e| Error::unavailable(format!("unable to read {what}: {e}")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Error::unavailable(format!("unable to read {what}: not UTF-8")))?;
    Ok(match secret {
        Secret::Inline(_) => text,
        Secret::File(_) => text.trim().to_owned(),
    })
}

/// Reads a secret that need not be set: empty without one.
pub(super) async fn reveal_optional(secret: &Option<Secret>, what: &str) -> Result<String, Error> {
    match secret {
        Some(secret) => reveal(secret, what).await,
        None => Ok(String::new()),
    }
}
