//! Credentials printed by an external program, as configured under `exec` in a kubeconfig and used
//! for the logins of managed clusters (`client.authentication.k8s.io`, the credential plugin API of
//! client-go).
//!
//! The program runs when a token is needed and the previous one has expired. Its input is empty, so
//! that it cannot prompt the user. Invariant: its run time and the size of its output are limited.

use super::auth::EXPIRY_MARGIN;
use super::settings::ExecSettings;
use firn_model::error::Error;
use serde::Deserialize;
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// Maximum run time of the program.
const PATIENCE: Duration = Duration::from_secs(60);

/// Maximum size of its output in bytes. Tokens have a few thousand bytes.
const PRINTED_MAX: u64 = 1 << 20;

/// Lifetime of a token without an expiry.
const KEPT: Duration = Duration::from_secs(300);

/// Tokens of one client that the program has printed; the latest one is cached.
#[derive(Debug, Default)]
pub(super) struct ExecTokenCache {
    /// Latest token with its expiry. Locked while the program runs, so that concurrent requests
    /// share one run.
    newest: Mutex<Option<(String, Instant)>>,
}

#[derive(Deserialize)]
struct ExecCredential {
    #[serde(default)]
    status: Option<ExecCredentialStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredentialStatus {
    #[serde(default)]
    token: String,
    expiration_timestamp: Option<String>,
}

impl ExecTokenCache {
    /// Returns the value of an `Authorization` header with a valid token. Runs the program if
    /// necessary.
    pub(super) async fn authorization_header(
        &self,
        settings: &ExecSettings,
    ) -> Result<String, Error> {
        let mut newest = self.newest.lock().await;
        if let Some((token, end)) = &*newest
            && Instant::now() < *end
        {
            return Ok(format!("Bearer {token}"));
        }
        let command = settings.command.display();
        let wrong = |what: String| Error::unavailable(format!("exec: {command}: {what}"));
        let printed = timeout(PATIENCE, run(settings)).await;
        let printed = printed.map_err(|_| wrong(format!("no answer within {PATIENCE:?}")))?;
        let printed: ExecCredential = serde_json::from_slice(&printed.map_err(wrong)?)
            .map_err(|e| wrong(format!("cannot read its output: {e}")))?;
        let status = printed.status.filter(|status| !status.token.is_empty());
        let status = status.ok_or_else(|| wrong("it returned no token".to_owned()))?;
        let life = match &status.expiration_timestamp {
            Some(text) => token_lifetime(text).map_err(wrong)?,
            None => KEPT,
        };
        let header = format!("Bearer {}", status.token);
        *newest = Some((status.token, Instant::now() + life));
        Ok(header)
    }
}

/// Returns how long a token with this expiry may be used.
fn token_lifetime(end: &str) -> Result<Duration, String> {
    let end = OffsetDateTime::parse(end, &Rfc3339);
    let end = end.map_err(|e| format!("expirationTimestamp: {e}"))?;
    let left = Duration::try_from(end - OffsetDateTime::now_utc()).unwrap_or_default();
    Ok(left.saturating_sub(EXPIRY_MARGIN))
}

/// Runs the program and returns its output. Fails if it exits with an error.
async fn run(settings: &ExecSettings) -> Result<Vec<u8>, String> {
    let info = json!({
        "apiVersion": settings.api_version,
        "kind": "ExecCredential",
        "spec": {"interactive": false},
    });
    let mut child = Command::new(&settings.command)
        .args(&settings.args)
        .envs(settings.env.iter().map(|(name, value)| (name, value)))
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| match &settings.install_hint {
            Some(hint) => format!("{e}; {hint}"),
            None => e.to_string(),
        })?;
    let printed = read_output(&mut child).await?;
    let status = child.wait().await.map_err(|e| e.to_string())?;
    if status.success() {
        Ok(printed)
    } else {
        Err(status.to_string())
    }
}

async fn read_output(child: &mut Child) -> Result<Vec<u8>, String> {
    let mut printed = Vec::new();
    if let Some(output) = child.stdout.take() {
        let mut bounded = output.take(PRINTED_MAX + 1);
        let read = bounded.read_to_end(&mut printed).await;
        read.map_err(|e| e.to_string())?;
    }
    if printed.len() as u64 > PRINTED_MAX {
        Err(format!(
            "it prints more than {PRINTED_MAX} bytes, the limit"
        ))
    } else {
        Ok(printed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ExecSettings {
        ExecSettings {
            command: "sh".into(),
            args: vec!["-c".into(), script.into()],
            env: vec![("WORD".into(), "t".into())],
            api_version: "client.authentication.k8s.io/v1".into(),
            install_hint: None,
        }
    }

    /// Creates a program that counts its runs in a file and prints a token with that number, which
    /// expires at `end`.
    fn counting(dir: &tempfile::TempDir, end: &str) -> ExecSettings {
        let runs = dir.path().join("runs");
        let end = match end {
            "" => String::new(),
            end => format!(", \"expirationTimestamp\": \"{end}\""),
        };
        shell(&format!(
            "echo >> {runs}; printf '{{\"status\": {{\"token\": \"%s%s\"{end}}}}}' $WORD \
             $(wc -l < {runs})",
            runs = runs.display()
        ))
    }

    #[tokio::test]
    async fn token_of_a_program_is_used_until_it_ends() {
        for (end, second) in [
            ("", "Bearer t1"),
            ("2999-01-01T00:00:00Z", "Bearer t1"),
            ("2001-01-01T00:00:00Z", "Bearer t2"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let (settings, tokens) = (counting(&dir, end), ExecTokenCache::default());
            assert_eq!(
                tokens.authorization_header(&settings).await.unwrap(),
                "Bearer t1"
            );
            assert_eq!(
                tokens.authorization_header(&settings).await.unwrap(),
                second,
                "{end}"
            );
        }
    }

    #[tokio::test]
    async fn program_that_gives_no_token_is_named_with_what_it_did() {
        let told = |script: &'static str| async move {
            let tokens = ExecTokenCache::default();
            tokens
                .authorization_header(&shell(script))
                .await
                .unwrap_err()
                .message
        };
        assert_eq!(told("exit 3").await, "exec: sh: exit status: 3");
        assert_eq!(
            told("echo '{\"status\": {}}'").await,
            "exec: sh: it returned no token"
        );
        let garbage = told("echo x").await;
        assert!(
            garbage.starts_with("exec: sh: cannot read its output: "),
            "{garbage}"
        );
        assert_eq!(
            told("yes").await,
            "exec: sh: it prints more than 1048576 bytes, the limit"
        );
        let seen = r#"test "$(echo $KUBERNETES_EXEC_INFO | grep -c '"interactive":false')" = 1 &&
            echo '{"status": {"token": "x", "expirationTimestamp": "soon"}}'"#;
        let when = told(seen).await;
        assert!(
            when.starts_with("exec: sh: expirationTimestamp: "),
            "{when}"
        );
    }
}
