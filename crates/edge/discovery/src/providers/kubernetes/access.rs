//! Address and credentials of a cluster's API, from a URL in the config, from a kubeconfig, or from
//! the service account of the pod in which this process runs.

use super::settings::KubernetesSettings;
use crate::api::{ApiClient, invalid_response_error};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use firn_http_client::named_files;
use firn_http_client::{
    AuthMethod, ClientTlsSettings, ExecSettings, HttpSettings, ProxySettings, Secret,
};
use firn_model::error::Error;
use firn_yaml::YamlNode;
use std::path::{Path, PathBuf};

/// Folder in which a pod finds its token, CA certificate and namespace.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// A connection to the API of a cluster, shared by its reflectors.
#[derive(Debug)]
pub(super) struct KubernetesCluster {
    /// Base URL of the API.
    pub(super) base: String,
    pub(super) api: ApiClient,
    /// Namespaces to watch. A single empty name means all namespaces.
    pub(super) namespaces: Vec<String>,
}

impl KubernetesCluster {
    /// Determines the address, credentials and namespaces from `settings`. Reads files, so it may
    /// block.
    pub(super) fn find_cluster(
        settings: &KubernetesSettings,
        bytes_max: u64,
    ) -> Result<Self, Error> {
        let mut namespaces = settings.namespaces.clone();
        let (base, client) = match (&settings.kubeconfig, &settings.api_server) {
            (Some(path), _) => read_kubeconfig(path)?,
            (None, Some(server)) => (server.clone(), settings.client.clone()),
            (None, None) => {
                if settings.own_namespace {
                    namespaces.push(read_own_namespace()?);
                }
                read_pod_access()?
            }
        };
        if namespaces.is_empty() {
            namespaces.push(String::new());
        }
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            api: ApiClient::new(&client, bytes_max),
            namespaces,
        })
    }
}

fn read_own_namespace() -> Result<String, Error> {
    let path = Path::new(SERVICE_ACCOUNT).join("namespace");
    match named_files::read_text(&path) {
        Ok(name) if name.is_empty() => Err(invalid_response_error(
            "could not read own namespace name (empty file)",
        )),
        Ok(name) => Ok(name),
        Err(e) => Err(invalid_response_error(format!(
            "could not determine the pod's namespace: {e}"
        ))),
    }
}

/// Returns the API address and client settings for a process in a pod.
fn read_pod_access() -> Result<(String, HttpSettings), Error> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let host = variable("KUBERNETES_SERVICE_HOST");
    let port = variable("KUBERNETES_SERVICE_PORT");
    let (Some(host), Some(port)) = (host, port) else {
        return Err(invalid_response_error(
            "unable to load in-cluster configuration, KUBERNETES_SERVICE_HOST and \
             KUBERNETES_SERVICE_PORT must be defined",
        ));
    };
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host
    };
    let file = |name: &str| Some(Secret::File(Path::new(SERVICE_ACCOUNT).join(name)));
    let client = HttpSettings {
        auth: AuthMethod::Credentials {
            scheme: "Bearer".into(),
            credentials: file("token"),
        },
        tls: ClientTlsSettings {
            ca: file("ca.crt"),
            ..ClientTlsSettings::default()
        },
        ..HttpSettings::default()
    };
    Ok((format!("https://{host}:{port}"), client))
}

/// Returns the API address and client settings of the current context in a kubeconfig.
fn read_kubeconfig(path: &Path) -> Result<(String, HttpSettings), Error> {
    let shown = path.display();
    let text = named_files::read_text(path)
        .map_err(|e| invalid_response_error(format!("{shown}: {e}")))?;
    let read =
        firn_yaml::parse(&text).map_err(|e| invalid_response_error(format!("{shown}:{e}")))?;
    let root = read.ok_or_else(|| invalid_response_error(format!("{shown}: the file is empty")))?;
    let missing = |what: &str| invalid_response_error(format!("{shown}: no {what}"));
    let context = non_empty_text(&root, "current-context").unwrap_or_default();
    let context = find_named_section(&root, "contexts", context, "context")
        .ok_or_else(|| missing("current context"))?;
    let of = |list: &str, key: &str| {
        let name = non_empty_text(context, key).unwrap_or_default();
        find_named_section(&root, list, name, key)
    };
    let cluster = of("clusters", "cluster").ok_or_else(|| missing("cluster of that context"))?;
    let server =
        non_empty_text(cluster, "server").ok_or_else(|| missing("server of that cluster"))?;
    let dir = path.parent().unwrap_or(Path::new(""));
    let user = of("users", "user");
    let client = HttpSettings {
        auth: user.map_or(Ok(AuthMethod::None), |user| parse_auth(user, dir))?,
        tls: ClientTlsSettings {
            ca: read_secret(cluster, "certificate-authority", dir)?,
            cert: user.map_or(Ok(None), |user| {
                read_secret(user, "client-certificate", dir)
            })?,
            key: user.map_or(Ok(None), |user| read_secret(user, "client-key", dir))?,
            server_name: non_empty_text(cluster, "tls-server-name")
                .unwrap_or_default()
                .to_owned(),
            insecure_skip_verify: non_empty_text(cluster, "insecure-skip-tls-verify")
                == Some("true"),
            ..ClientTlsSettings::default()
        },
        proxy: ProxySettings {
            url: non_empty_text(cluster, "proxy-url").map(str::to_owned),
            ..ProxySettings::default()
        },
        ..HttpSettings::default()
    };
    Ok((server.to_owned(), client))
}

/// Returns the section `key` of the list entry called `name`.
fn find_named_section<'n>(
    root: &'n YamlNode,
    list: &str,
    name: &str,
    key: &str,
) -> Option<&'n YamlNode> {
    let entries = root.get(list)?.items();
    let entry = entries
        .iter()
        .find(|e| non_empty_text(e, "name") == Some(name))?;
    entry.get(key)
}

fn non_empty_text<'n>(node: &'n YamlNode, key: &str) -> Option<&'n str> {
    let text = node.get(key)?.text()?;
    (!text.is_empty()).then_some(text)
}

/// Returns the secret in `KEY-data` (base64), or else a reference to the file in `KEY`, relative to
/// `dir`.
fn read_secret(node: &YamlNode, key: &str, dir: &Path) -> Result<Option<Secret>, Error> {
    let data = format!("{key}-data");
    let Some(coded) = non_empty_text(node, &data) else {
        return Ok(non_empty_text(node, key).map(|path| Secret::File(dir.join(path))));
    };
    let bytes = BASE64_STANDARD
        .decode(coded)
        .map_err(|e| invalid_response_error(format!("{data}: {e}")))?;
    let text =
        String::from_utf8(bytes).map_err(|_| invalid_response_error(format!("{data}: not PEM")))?;
    Ok(Some(Secret::Inline(text)))
}

fn parse_auth(user: &YamlNode, dir: &Path) -> Result<AuthMethod, Error> {
    let section = |key: &str| user.get(key).filter(|section| !section.is_null());
    if section("auth-provider").is_some() {
        return Err(invalid_response_error(
            "users with auth-provider in a kubeconfig are not supported: use exec",
        ));
    }
    if let Some(program) = section("exec") {
        return parse_exec(program, dir).map(|settings| AuthMethod::Exec(Box::new(settings)));
    }
    let inline = |key: &str| non_empty_text(user, key).map(|text| Secret::Inline(text.to_owned()));
    let file = non_empty_text(user, "tokenFile").map(|path| Secret::File(dir.join(path)));
    if let Some(token) = file.or_else(|| inline("token")) {
        return Ok(AuthMethod::Credentials {
            scheme: "Bearer".into(),
            credentials: Some(token),
        });
    }
    Ok(match inline("username") {
        None => AuthMethod::None,
        username => AuthMethod::Basic {
            username,
            password: inline("password"),
        },
    })
}

/// Reads the `exec` section. A command that contains a slash is relative to the folder of the
/// kubeconfig.
fn parse_exec(program: &YamlNode, dir: &Path) -> Result<ExecSettings, Error> {
    let command = non_empty_text(program, "command");
    let command =
        command.ok_or_else(|| invalid_response_error("exec in a kubeconfig has no command"))?;
    let texts = |key: &str| {
        program
            .get(key)
            .map(|list| list.items())
            .unwrap_or_default()
    };
    let variable = |entry: &YamlNode| {
        let text = |key: &str| non_empty_text(entry, key).unwrap_or_default().to_owned();
        (text("name"), text("value"))
    };
    Ok(ExecSettings {
        command: if command.contains('/') {
            dir.join(command)
        } else {
            PathBuf::from(command)
        },
        args: texts("args")
            .iter()
            .map(|arg| arg.text().unwrap_or_default().to_owned())
            .collect(),
        env: texts("env").iter().map(variable).collect(),
        api_version: non_empty_text(program, "apiVersion")
            .unwrap_or_default()
            .to_owned(),
        install_hint: non_empty_text(program, "installHint").map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubeconfig_names_server_and_credentials() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        let text = "
apiVersion: v1
kind: Config
current-context: b
contexts:
- {name: a, context: {cluster: other, user: other}}
- {name: b, context: {cluster: c, user: u}}
clusters:
- name: c
  cluster: {server: 'https://k8s:6443', certificate-authority-data: Q0E=, tls-server-name: n}
users:
- {name: other, user: {auth-provider: {name: gcp}}}
- {name: exec, user: {exec: {command: ./login, args: [a, b], env: [{name: N, value: v}],
    apiVersion: client.authentication.k8s.io/v1, installHint: buy one}}}
- {name: u, user: {client-certificate: c.pem, client-key: k.pem, token: t}}
";
        std::fs::write(&path, text).unwrap();
        let (server, client) = read_kubeconfig(&path).unwrap();
        assert_eq!(server, "https://k8s:6443");
        assert_eq!(
            client.auth,
            AuthMethod::Credentials {
                scheme: "Bearer".into(),
                credentials: Some(Secret::Inline("t".into())),
            }
        );
        let file = |name: &str| Some(Secret::File(dir.path().join(name)));
        assert_eq!(client.tls.ca, Some(Secret::Inline("CA".into())));
        assert_eq!(client.tls.cert, file("c.pem"));
        assert_eq!(client.tls.key, file("k.pem"));
        assert_eq!(client.tls.server_name, "n");

        std::fs::write(&path, text.replace("user: u", "user: exec")).unwrap();
        let (_, client) = read_kubeconfig(&path).unwrap();
        let program = ExecSettings {
            command: dir.path().join("./login"),
            args: vec!["a".into(), "b".into()],
            env: vec![("N".into(), "v".into())],
            api_version: "client.authentication.k8s.io/v1".into(),
            install_hint: Some("buy one".into()),
        };
        assert_eq!(client.auth, AuthMethod::Exec(Box::new(program)));

        let refused = |text: String, want: &str| {
            std::fs::write(&path, text).unwrap();
            let e = read_kubeconfig(&path).unwrap_err().message;
            assert!(e.ends_with(want), "{e}");
        };
        let gone = "users with auth-provider in a kubeconfig are not supported: use exec";
        refused(text.replace("user: u", "user: other"), gone);
        refused(
            text.replace("context: b", "context: z"),
            "no current context",
        );
        refused(text.replace("Q0E=", "'?'"), "Invalid symbol 63, offset 0.");
    }
}
