//! Credentials of the config, which may be in files.
//!
//! Files are read again every [`REREAD`], so that replaced keys are used without a restart. A file
//! that cannot be read then does not stop the use of the keys that were read before.

use async_trait::async_trait;
use firn_http_client::{Secret, reveal};
use firn_model::sync::lock;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// Interval at which the files are read.
const REREAD: Duration = Duration::from_secs(30);

/// The keys of the config: key id, secret, and the token of temporary credentials.
#[derive(Debug)]
pub(crate) struct ConfigKeys {
    pub(crate) access_key: Secret,
    pub(crate) secret_key: Secret,
    pub(crate) session_token: Option<Secret>,
}

/// Provides the keys of the config.
#[derive(Debug)]
pub(crate) struct KeyProvider {
    keys: ConfigKeys,
    last: Mutex<Option<(Instant, Arc<AwsCredential>)>>,
}

impl KeyProvider {
    pub(crate) fn new(keys: ConfigKeys) -> Self {
        Self {
            keys,
            last: Mutex::new(None),
        }
    }

    async fn read(&self) -> Result<AwsCredential, firn_model::error::Error> {
        let keys = &self.keys;
        let token = match &keys.session_token {
            Some(token) => Some(reveal(token, "session token").await?),
            None => None,
        };
        Ok(AwsCredential {
            key_id: reveal(&keys.access_key, "access key").await?,
            secret_key: reveal(&keys.secret_key, "secret key").await?,
            token,
        })
    }
}

#[async_trait]
impl CredentialProvider for KeyProvider {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let last = lock(&self.last).clone();
        if let Some((read, credential)) = &last
            && read.elapsed() < REREAD
        {
            return Ok(credential.clone());
        }
        let credential = match (self.read().await, last) {
            (Ok(read), _) => Arc::new(read),
            (Err(_), Some((_, credential))) => credential,
            (Err(error), None) => {
                return Err(object_store::Error::Generic {
                    store: "credentials",
                    source: Box::new(error),
                });
            }
        };
        *lock(&self.last) = Some((Instant::now(), credential.clone()));
        Ok(credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn replaced_files_are_read_again_and_unreadable_ones_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            Secret::File(path)
        };
        let provider = KeyProvider::new(ConfigKeys {
            access_key: file("a", " AKIA1\n"),
            secret_key: file("s", "one\n"),
            session_token: Some(file("t", "token")),
        });
        let read = async || {
            let read = provider.get_credential().await.unwrap();
            let token = read.token.clone().unwrap();
            format!("{} {} {token}", read.key_id, read.secret_key)
        };
        assert_eq!(read().await, "AKIA1 one token");
        file("s", "two");
        assert_eq!(read().await, "AKIA1 one token", "cached");
        tokio::time::advance(REREAD).await;
        assert_eq!(read().await, "AKIA1 two token");
        std::fs::remove_file(folder.path().join("a")).unwrap();
        tokio::time::advance(REREAD).await;
        assert_eq!(read().await, "AKIA1 two token", "kept");
    }

    #[tokio::test]
    async fn missing_file_is_an_error_with_its_name() {
        let missing = || Secret::File("/missing/key".into());
        let provider = KeyProvider::new(ConfigKeys {
            access_key: missing(),
            secret_key: missing(),
            session_token: None,
        });
        let text = provider.get_credential().await.unwrap_err().to_string();
        assert!(text.contains("/missing/key"), "{text}");
    }
}
