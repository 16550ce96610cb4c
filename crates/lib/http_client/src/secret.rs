//! Reads secrets from the config or from files, each time they are needed.

use super::settings::Secret;
use crate::named_files;
use firn_model::error::Error;

/// Reads a secret without removing white space or decoding it.
pub(super) async fn read_bytes(secret: &Secret) -> Result<Vec<u8>, String> {
    match secret {
        Secret::Inline(text) => Ok(text.clone().into_bytes()),
        Secret::File(path) => named_files::read_async(path)
            .await
            .map_err(|e| format!("unable to read file {}: {e}", path.display())),
    }
}

/// Reads a secret that need not be valid UTF-8, since headers accept arbitrary bytes. White space
/// around the content of a file is removed. Error texts contain `what` as the name of the secret.
pub(super) async fn reveal_bytes(secret: &Secret, what: &str) -> Result<Vec<u8>, Error> {
    let bytes = read_bytes(secret)
        .await
        .map_err(|e| Error::unavailable(format!("unable to read {what}: {e}")))?;
    Ok(match secret {
        Secret::Inline(_) => bytes,
        Secret::File(_) => trim_bytes(&bytes).to_vec(),
    })
}

fn trim_bytes(bytes: &[u8]) -> &[u8] {
    match str::from_utf8(bytes) {
        Ok(text) => text.trim().as_bytes(),
        Err(_) => bytes.trim_ascii(),
    }
}

/// Reads a secret as text. White space around the content of a file is removed.
pub async fn reveal(secret: &Secret, what: &str) -> Result<String, Error> {
    String::from_utf8(reveal_bytes(secret, what).await?)
        .map_err(|_| Error::unavailable(format!("unable to read {what}: not UTF-8")))
}

/// Reads an optional secret. Returns an empty value if it is not set.
pub(super) async fn reveal_optional(secret: &Option<Secret>, what: &str) -> Result<Vec<u8>, Error> {
    match secret {
        Some(secret) => reveal_bytes(secret, what).await,
        None => Ok(Vec::new()),
    }
}
