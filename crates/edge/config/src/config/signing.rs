//! Request signing of `remote_write` in addition to the authentication of every HTTP client: AWS,
//! Azure AD and Google IAM, with the checks of upstream.

use ConfigValueShape::{Bool, Path, Section, Text};
use firn_config_schema::read::{self, is_set, is_uuid};
use firn_config_schema::schema::{ConfigKey, ConfigValueShape, key};
use firn_discovery::{AzureAdSettings, AzureCloud, AzureIdentity, GoogleIamSettings};
use firn_http_client::Secret;
use firn_yaml::{YamlError, YamlNode};
use std::path::PathBuf;

/// Keys of the section `sigv4`.
pub const SIGV4: &[ConfigKey] = &[
    key("region", Text),
    key("access_key", Text),
    key("secret_key", ConfigValueShape::Secret),
    key("profile", Text),
    key("role_arn", Text),
    key("external_id", Text),
    key("use_fips_sts_endpoint", Bool),
    key("service_name", Text),
];

/// Keys of the section `azuread`.
pub const AZURE_AD: &[ConfigKey] = &[
    key("managed_identity", Section(&[&[key("client_id", Text)]])),
    key(
        "workload_identity",
        Section(&[&[
            key("client_id", Text),
            key("tenant_id", Text),
            key("token_file_path", Text),
        ]]),
    ),
    key(
        "oauth",
        Section(&[&[
            key("client_id", Text),
            key("client_secret", ConfigValueShape::Secret),
            key("tenant_id", Text),
        ]]),
    ),
    key("sdk", Section(&[&[key("tenant_id", Text)]])),
    key(
        "certificate",
        Section(&[&[
            key("client_id", Text),
            key("tenant_id", Text),
            key("certificate_path", Text),
            key("certificate_key_path", Text),
            key("certificate_password", ConfigValueShape::Secret),
            key("send_certificate_chain", Bool),
        ]]),
    ),
    key("cloud", Text).or("AzurePublic"),
    key("scope", Text),
];

/// Keys of the section `google_iam`.
pub const GOOGLE_IAM: &[ConfigKey] = &[key("credentials_file", Path)];

/// Validates the section `sigv4`: keys must be set in pairs, and an external id needs a role.
pub fn check_sigv4(node: &YamlNode) -> Result<(), YamlError> {
    let message = if is_set(node, "access_key") != is_set(node, "secret_key") {
        "must provide a AWS SigV4 Access key and Secret Key if credentials are specified in the \
         SigV4 config"
    } else if is_set(node, "external_id") && !is_set(node, "role_arn") {
        "external_id can only be used with role_arn"
    } else {
        return Ok(());
    };
    Err(node.error(message))
}

/// Authentication methods of `azuread`: key, name in errors, and required fields.
const AZURE_WAYS: [(&str, &str, &[&str]); 5] = [
    ("managed_identity", "Azure Managed Identity", &[]),
    (
        "workload_identity",
        "Azure Workload Identity",
        &["client_id", "tenant_id"],
    ),
    (
        "oauth",
        "Azure OAuth",
        &["client_id", "client_secret", "tenant_id"],
    ),
    ("sdk", "Azure SDK", &[]),
    (
        "certificate",
        "Azure Certificate",
        &["client_id", "tenant_id", "certificate_path"],
    ),
];

/// Validates the section `azuread`: a valid cloud, and exactly one authentication method with its
/// required fields.
pub fn check_azuread(node: &YamlNode) -> Result<(), YamlError> {
    let cloud = read::string(node, "cloud");
    if !matches!(
        cloud.as_str(),
        "" | "AzureChina" | "AzureGovernment" | "AzurePublic"
    ) {
        return Err(node.error("must provide a cloud in the Azure AD config"));
    }
    let given = |key: &str| node.get(key).filter(|section| !section.is_null());
    let ways = AZURE_WAYS.iter().filter_map(|(key, name, required)| {
        let section = given(key)?;
        Some((section, *key, *name, *required))
    });
    let ways: Vec<_> = ways.collect();
    match ways[..] {
        [] => {
            return Err(node.error(
                "must provide an Azure Managed Identity, Azure Workload Identity, Azure OAuth, \
                 Azure Certificate or Azure SDK in the Azure AD config",
            ));
        }
        [(section, key, name, required)] => check_azure_way(section, key, name, required)?,
        _ => {
            return Err(
                node.error("cannot provide multiple authentication methods in the Azure AD config")
            );
        }
    }
    let may_stand =
        |c: char| c.is_ascii_alphanumeric() || c.is_ascii_whitespace() || "_:/.-".contains(c);
    if read::string(node, "scope").chars().all(may_stand) {
        Ok(())
    } else {
        Err(node.error("the provided scope contains invalid characters"))
    }
}

/// Reads the validated section `azuread` of `node`, if it is set.
pub fn azuread(node: &YamlNode) -> Option<AzureAdSettings> {
    let section = given(node, "azuread")?;
    let way = |key: &str| given(section, key);
    let of = |way: &YamlNode, key: &str| read::string(way, key);
    let identity = if let Some(way) = way("managed_identity") {
        AzureIdentity::Managed {
            client: of(way, "client_id"),
        }
    } else if let Some(way) = way("workload_identity") {
        let file = read::text(way, "token_file_path").filter(|path| !path.is_empty());
        AzureIdentity::Workload {
            tenant: of(way, "tenant_id"),
            client: of(way, "client_id"),
            file: file.map(PathBuf::from),
        }
    } else if let Some(way) = way("oauth") {
        AzureIdentity::Secret {
            tenant: of(way, "tenant_id"),
            client: of(way, "client_id"),
            secret: Secret::Inline(of(way, "client_secret")),
        }
    } else if let Some(way) = way("certificate") {
        let key_file = read::text(way, "certificate_key_path").filter(|path| !path.is_empty());
        AzureIdentity::Certificate {
            tenant: of(way, "tenant_id"),
            client: of(way, "client_id"),
            file: of(way, "certificate_path").into(),
            key_file: key_file.map(PathBuf::from),
            password: Secret::Inline(of(way, "certificate_password")),
            sends_chain: read::flag_or(way, "send_certificate_chain", false),
        }
    } else {
        AzureIdentity::Sdk {
            tenant: of(way("sdk")?, "tenant_id"),
        }
    };
    Some(AzureAdSettings {
        cloud: match read::string(section, "cloud").as_str() {
            "AzureChina" => AzureCloud::China,
            "AzureGovernment" => AzureCloud::Government,
            _ => AzureCloud::Public,
        },
        identity,
        scope: read::string(section, "scope"),
    })
}

/// Reads the section `google_iam` of `node`, if it is set.
pub fn google_iam(node: &YamlNode) -> Option<GoogleIamSettings> {
    let section = given(node, "google_iam")?;
    let file = read::text(section, "credentials_file").filter(|path| !path.is_empty());
    Some(GoogleIamSettings {
        credentials_file: file.map(PathBuf::from),
    })
}

fn given<'n>(node: &'n YamlNode, key: &str) -> Option<&'n YamlNode> {
    node.get(key).filter(|section| !section.is_null())
}

fn check_azure_way(
    node: &YamlNode,
    way: &str,
    name: &str,
    required: &[&str],
) -> Result<(), YamlError> {
    for key in required {
        if !is_set(node, key) {
            let message = format!("must provide an {name} {key} in the Azure AD config");
            return Err(node.error(message));
        }
    }
    let ids: &[&str] = match way {
        "workload_identity" => &["client_id", "tenant_id"],
        "sdk" => &[],
        _ => &["client_id"],
    };
    for key in ids {
        let id = read::string(node, key);
        if !id.is_empty() && !is_uuid_of_any_form(&id) {
            return Err(node.error(format!("the provided {name} {key} is invalid")));
        }
    }
    Ok(())
}

/// Returns whether `text` is a UUID: with dashes, in braces, as a URN, or without dashes.
fn is_uuid_of_any_form(text: &str) -> bool {
    let is_bare = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let in_braces = (text.len() == 38).then(|| text.get(1..37)).flatten();
    let in_urn = text
        .get(..9)
        .filter(|head| head.eq_ignore_ascii_case("urn:uuid:"))
        .and_then(|_| text.get(9..));
    is_bare || is_uuid(text) || in_braces.is_some_and(is_uuid) || in_urn.is_some_and(is_uuid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(section: &str) -> (Option<AzureAdSettings>, Option<GoogleIamSettings>) {
        let node = firn_yaml::parse(section).unwrap().unwrap();
        (azuread(&node), google_iam(&node))
    }

    #[test]
    fn section_is_taken_by_its_way() {
        let azure = |identity: AzureIdentity| AzureAdSettings {
            cloud: AzureCloud::Public,
            identity,
            scope: String::new(),
        };
        let managed = AzureIdentity::Managed { client: "c".into() };
        let sdk = AzureIdentity::Sdk { tenant: "t".into() };
        let workload = AzureIdentity::Workload {
            tenant: "t".into(),
            client: "c".into(),
            file: Some("f".into()),
        };
        let secret = AzureIdentity::Secret {
            tenant: "t".into(),
            client: "c".into(),
            secret: Secret::Inline("s".into()),
        };
        let certificate = AzureIdentity::Certificate {
            tenant: "t".into(),
            client: "c".into(),
            file: "p".into(),
            key_file: Some("k".into()),
            password: Secret::Inline("w".into()),
            sends_chain: true,
        };
        for (section, want) in [
            ("{managed_identity: {client_id: c}}", Some(azure(managed))),
            ("{sdk: {tenant_id: t}}", Some(azure(sdk))),
            (
                "{workload_identity: {client_id: c, tenant_id: t, token_file_path: f}}",
                Some(azure(workload)),
            ),
            (
                "{cloud: AzureChina, scope: x, oauth: {client_id: c, tenant_id: t, \
                 client_secret: s}}",
                Some(AzureAdSettings {
                    cloud: AzureCloud::China,
                    scope: "x".into(),
                    ..azure(secret)
                }),
            ),
            (
                "{certificate: {client_id: c, tenant_id: t, certificate_path: p, \
                 certificate_key_path: k, certificate_password: w, send_certificate_chain: true}}",
                Some(azure(certificate)),
            ),
        ] {
            assert_eq!(
                of(&format!("azuread: {section}")),
                (want, None),
                "{section}"
            );
        }
        let iam = |file: Option<&str>| GoogleIamSettings {
            credentials_file: file.map(PathBuf::from),
        };
        assert_eq!(of("google_iam: {}"), (None, Some(iam(None))));
        let section = "google_iam: {credentials_file: /k.json}";
        assert_eq!(of(section), (None, Some(iam(Some("/k.json")))));
        assert_eq!(of("url: x"), (None, None));
    }
}
