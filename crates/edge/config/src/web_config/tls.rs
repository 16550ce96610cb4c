//! The section `tls_server_config` and the files that it names.

use super::strict::StrictValueReader;
use super::{WebConfigError, go_error};
use firn_http_client::load_system_roots;
use firn_http_client::named_files;
use firn_x509::listener::{
    self, CipherSuite, ClientAuthPolicy, KeyExchangeCurve, ListenerTlsSettings, ServerConfig,
    ServerTlsVersion, TlsFileContents,
};
use firn_yaml::YamlNode;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// PEM data of a certificate or a key: inline in the web config, or the path of a file.
#[derive(Clone, PartialEq, Eq)]
enum PemSource {
    Inline(String),
    File(PathBuf),
}

/// The section as parsed, not yet validated. Pairs contain the file and the inline form.
pub(super) struct RawTlsSection {
    cert: [Option<PemSource>; 2],
    key: [Option<PemSource>; 2],
    client_ca: [Option<PemSource>; 2],
    client_auth: String,
    settings: ListenerTlsSettings,
}

/// Validated TLS settings of the web config. Not `Debug`, because it may contain a private key.
#[derive(Clone, PartialEq)]
pub struct TlsSection {
    cert: PemSource,
    key: PemSource,
    client_ca: Option<PemSource>,
    client_auth: String,
    settings: ListenerTlsSettings,
}

/// TLS settings with the contents of their files. Not `Debug`, because it contains a private key.
#[derive(Clone, PartialEq)]
pub struct TlsInput {
    settings: ListenerTlsSettings,
    files: TlsFileContents,
}

const FIELDS: [&str; 13] = [
    "cert",
    "key",
    "client_ca",
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "cipher_suites",
    "curve_preferences",
    "min_version",
    "max_version",
    "prefer_server_cipher_suites",
    "client_allowed_sans",
];

/// Reads the section. An unknown name of a version, cipher or curve is an error at once, as in
/// Prometheus's exporter toolkit.
pub(super) fn read(
    node: &YamlNode,
    dir: &Path,
    strict: &mut StrictValueReader,
    warnings: &mut Vec<String>,
) -> Result<RawTlsSection, String> {
    let mut raw = RawTlsSection {
        cert: [None, None],
        key: [None, None],
        client_ca: [None, None],
        client_auth: String::new(),
        settings: ListenerTlsSettings {
            min_version: ServerTlsVersion::V12,
            max_version: ServerTlsVersion::V13,
            ciphers: Vec::new(),
            curves: Vec::new(),
            prefers_server_ciphers: true,
            client_auth: ClientAuthPolicy::NoClientCert,
            client_sans: None,
            http2: true,
        },
    };
    for (key, node) in strict.fields(Some(node), "web.TLSConfig", &FIELDS) {
        match key {
            "cert" => raw.cert[1] = inline(strict.text(node)),
            "key" => raw.key[1] = inline(strict.text(node)),
            "client_ca" => raw.client_ca[1] = inline(strict.text(node)),
            "cert_file" => raw.cert[0] = file(dir, &strict.text(node)),
            "key_file" => raw.key[0] = file(dir, &strict.text(node)),
            "client_ca_file" => raw.client_ca[0] = file(dir, &strict.text(node)),
            "client_auth_type" => raw.client_auth = strict.text(node),
            _ => read_setting(&mut raw.settings, key, node, strict, warnings)?,
        }
    }
    Ok(raw)
}

fn read_setting(
    settings: &mut ListenerTlsSettings,
    key: &str,
    node: &YamlNode,
    strict: &mut StrictValueReader,
    warnings: &mut Vec<String>,
) -> Result<(), String> {
    match key {
        // A key without a value is treated as missing.
        "min_version" | "max_version" if node.is_null() => {}
        "min_version" => {
            settings.min_version = version(&strict.text(node))?;
            if settings.min_version < ServerTlsVersion::V12 {
                warnings.push("min_version: TLS 1.2 is the oldest version that Firn speaks".into());
            }
        }
        "max_version" => settings.max_version = version(&strict.text(node))?,
        "prefer_server_cipher_suites" => {
            settings.prefers_server_ciphers = strict.flag(node).unwrap_or(true);
        }
        "cipher_suites" => {
            for node in named(strict, node, "[]web.Cipher") {
                let name = strict.text(node);
                let cipher = CipherSuite::from_name(&name);
                let cipher = cipher.ok_or_else(|| format!("unknown cipher: {name}"))?;
                if !cipher.is_supported() {
                    warnings.push(format!("cipher_suites: Firn does not support {name}"));
                }
                settings.ciphers.push(cipher);
            }
        }
        "curve_preferences" => {
            for node in named(strict, node, "[]web.Curve") {
                let name = strict.text(node);
                let curve = KeyExchangeCurve::from_name(&name);
                let curve = curve.ok_or_else(|| format!("unknown curve: {name}"))?;
                if !curve.is_supported() {
                    warnings.push(format!("curve_preferences: Firn does not support {name}"));
                }
                settings.curves.push(curve);
            }
        }
        _ => {
            let names = strict.texts(node, "[]string");
            settings.client_sans =
                names.map(|names| names.into_iter().map(|node| strict.text(node)).collect());
        }
    }
    Ok(())
}

/// Returns the items of a list of names, without null items.
fn named<'n>(
    strict: &mut StrictValueReader,
    node: &'n YamlNode,
    type_name: &str,
) -> Vec<&'n YamlNode> {
    let mut items = strict.texts(node, type_name).unwrap_or_default();
    items.retain(|item| !item.is_null());
    items
}

fn inline(text: String) -> Option<PemSource> {
    (!text.is_empty()).then_some(PemSource::Inline(text))
}

fn file(dir: &Path, name: &str) -> Option<PemSource> {
    (!name.is_empty()).then(|| PemSource::File(dir.join(name)))
}

fn version(name: &str) -> Result<ServerTlsVersion, String> {
    ServerTlsVersion::from_name(name).ok_or_else(|| format!("unknown TLS version: {name}"))
}

impl RawTlsSection {
    /// Returns the validated section, or `None` if it does not enable TLS.
    pub(super) fn enabled(self, http2: bool) -> Option<Result<TlsSection, String>> {
        // Files take precedence over inline values.
        let first = |[file, inline]: [Option<PemSource>; 2]| file.or(inline);
        let (cert, key) = (first(self.cert), first(self.key));
        let client_ca = first(self.client_ca);
        let is_set = cert.is_some() || key.is_some() || client_ca.is_some();
        if !is_set && self.client_auth.is_empty() {
            return None;
        }
        Some(match (cert, key) {
            (None, _) => Err("missing one of cert or cert_file".into()),
            (_, None) => Err("missing one of key or key_file".into()),
            (Some(cert), Some(key)) => Ok(TlsSection {
                cert,
                key,
                client_ca,
                client_auth: self.client_auth,
                settings: ListenerTlsSettings {
                    http2,
                    ..self.settings
                },
            }),
        })
    }
}

impl TlsSection {
    /// Returns the paths of the files that the section names.
    pub fn files(&self) -> Vec<PathBuf> {
        let all = [Some(&self.cert), Some(&self.key), self.client_ca.as_ref()];
        let files = all.into_iter().flatten().filter_map(|pem| match pem {
            PemSource::File(path) => Some(path.clone()),
            PemSource::Inline(_) => None,
        });
        files.collect()
    }

    /// Reads the files of the section. Fails if one is missing or unreadable.
    pub fn load(&self) -> Result<TlsInput, WebConfigError> {
        let cert = load(&self.cert, "failed to read cert_file")?;
        let key = load(&self.key, "failed to read key_file")?;
        let client_ca = match &self.client_ca {
            Some(pem) => Some(load(pem, "")?),
            None => None,
        };
        let unknown = || format!("invalid ClientAuth: {}", self.client_auth);
        let client_auth = ClientAuthPolicy::from_name(&self.client_auth).ok_or_else(unknown)?;
        Ok(TlsInput {
            settings: ListenerTlsSettings {
                client_auth,
                ..self.settings.clone()
            },
            files: TlsFileContents {
                cert,
                key,
                client_ca,
            },
        })
    }
}

impl TlsInput {
    /// Returns whether every client must present a certificate that the server verifies.
    pub fn requires_client_certificate(&self) -> bool {
        self.settings.client_auth == ClientAuthPolicy::RequireAndVerifyClientCert
    }

    /// Builds the TLS configuration of the server. Fails for invalid certificates or keys.
    pub fn server_config(&self) -> Result<Arc<ServerConfig>, WebConfigError> {
        let config = listener::server_config(&self.settings, &self.files, load_system_roots);
        config.map_err(|e| WebConfigError::from(e.to_string()))
    }
}

/// Returns the bytes of a PEM. `failed` is the prefix of the error if its file cannot be read.
fn load(pem: &PemSource, failed: &str) -> Result<Vec<u8>, WebConfigError> {
    let path = match pem {
        PemSource::Inline(text) => return Ok(text.clone().into_bytes()),
        PemSource::File(path) => path,
    };
    named_files::read(path).map_err(|e| {
        let why = go_error("open", path, &e);
        WebConfigError::from(match failed {
            "" => why,
            failed => format!("{failed} ({}): {why}", path.display()),
        })
    })
}
