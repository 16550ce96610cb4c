//! Client of OpenStack's identity API (version 3): access tokens and the service catalog.

use super::{OpenStackCredentials, OpenStackSettings};
use crate::api::{ApiClient, invalid_response_error, parse_header_value};
use crate::environment::Variables;
use crate::json::answers;
use firn_http_client::{Secret, reveal};
use firn_model::error::Error;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};

/// Request header with the access token.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// Response header with a newly issued token.
const ISSUED: &str = "x-subject-token";

/// An access token with the catalog of services for which it is valid.
pub(super) struct KeystoneSession {
    pub(super) token: HeaderValue,
    catalog: Vec<KeystoneService>,
    region: String,
    availability: String,
}

answers! {
    struct KeystoneTokenResponse {
        token: KeystoneToken,
    }

    struct KeystoneToken {
        catalog: Vec<KeystoneService>,
    }

    struct KeystoneService {
        #[serde(rename = "type")]
        kind: String,
        endpoints: Vec<KeystoneEndpoint>,
    }

    struct KeystoneEndpoint {
        interface: String,
        region: String,
        region_id: String,
        url: String,
    }

    struct KeystoneVersionList {
        versions: KeystoneVersionValues,
    }

    struct KeystoneVersionValues {
        values: Vec<KeystoneVersion>,
    }

    struct KeystoneVersion {
        id: String,
        status: String,
        links: Vec<KeystoneLink>,
    }

    struct KeystoneLink {
        rel: String,
        href: String,
    }
}

impl KeystoneSession {
    /// Requests a token with the credentials in the settings, or else those in the environment.
    pub(super) async fn authenticate(
        api: &ApiClient,
        settings: &OpenStackSettings,
        variables: &Variables,
    ) -> Result<Self, Error> {
        let credentials = match settings.credentials.endpoint.as_str() {
            "" => OpenStackCredentials::from_environment(variables)?,
            _ => settings.credentials.clone(),
        };
        let endpoint = find_endpoint(api, &credentials.endpoint).await?;
        let mut identity = credentials.build_identity().await?;
        if let Some(scope) = credentials.build_scope()? {
            identity["auth"]["scope"] = scope;
        }
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json.clone()), (ACCEPT, json)]);
        let url = format!("{endpoint}auth/tokens");
        let answer = api.post(&url, &headers, identity.to_string().into());
        let answer = answer.await?.require_success()?;
        let mut token = parse_header_value(answer.header(ISSUED))?;
        token.set_sensitive(true);
        let answer: KeystoneTokenResponse = answer.decode_json().await?;
        Ok(Self {
            token,
            catalog: answer.token.catalog,
            region: settings.region.clone(),
            availability: settings.availability.clone(),
        })
    }

    /// Returns the base URL of a service in the configured region, with a trailing slash.
    pub(super) fn find_service_url(&self, kind: &str) -> Result<String, Error> {
        let services = self.catalog.iter().filter(|service| service.kind == kind);
        let mut endpoints = services.flat_map(|service| &service.endpoints);
        let found = endpoints.find(|endpoint| {
            let is_here = endpoint.region == self.region || endpoint.region_id == self.region;
            endpoint.interface == self.availability && (is_here || self.region.is_empty())
        });
        match found {
            Some(endpoint) => Ok(add_slash(&endpoint.url)),
            None => Err(invalid_response_error(format!(
                "could not create OpenStack {kind} session: no suitable endpoint could be found \
                 in the service catalog"
            ))),
        }
    }
}

fn add_slash(url: &str) -> String {
    format!("{}/", url.trim_end_matches('/'))
}

/// Returns the base URL of version 3 of the identity API. Requests the supported versions unless
/// `configured` contains the version.
async fn find_endpoint(api: &ApiClient, configured: &str) -> Result<String, Error> {
    let endpoint = add_slash(configured);
    if endpoint.ends_with("/v3/") {
        return Ok(endpoint);
    }
    if endpoint.ends_with("/v2.0/") {
        return Err(invalid_response_error(format!(
            "version 2.0 of the identity API is not spoken: {configured}"
        )));
    }
    let answer = api.get(&endpoint, &HeaderMap::new()).await?;
    // Status 300 (multiple choices) is the regular response of an endpoint with several versions.
    let answer = match answer.status.as_u16() {
        300 => answer,
        _ => answer.require_success()?,
    };
    let versions: KeystoneVersionList = answer.decode_json().await?;
    let is_good = |version: &&KeystoneVersion| {
        let status = version.status.to_ascii_lowercase();
        version.id.contains("v3") && matches!(status.as_str(), "current" | "supported" | "stable")
    };
    let found = versions.versions.values.iter().find(is_good);
    let mut links = found.into_iter().flat_map(|version| &version.links);
    let link = links.rfind(|link| link.rel == "self");
    match link {
        Some(link) => Ok(add_slash(&link.href)),
        None => Err(invalid_response_error(format!(
            "no supported version available from endpoint {endpoint}"
        ))),
    }
}

async fn reveal_password(secret: &Option<Secret>) -> Result<String, Error> {
    match secret {
        Some(secret) => reveal(secret, "password").await,
        None => Ok(String::new()),
    }
}

impl OpenStackCredentials {
    fn from_environment(variables: &Variables) -> Result<Self, Error> {
        let of = |name: &str| variables(name).unwrap_or_default();
        let either = |first: &str, second: &str| match of(first) {
            value if value.is_empty() => of(second),
            value => value,
        };
        let secret = |name: &str| Some(of(name)).filter(|s| !s.is_empty()).map(Secret::Inline);
        let credentials = Self {
            endpoint: of("OS_AUTH_URL"),
            username: of("OS_USERNAME"),
            user_id: of("OS_USERID"),
            password: secret("OS_PASSWORD"),
            project_name: either("OS_PROJECT_NAME", "OS_TENANT_NAME"),
            project_id: either("OS_PROJECT_ID", "OS_TENANT_ID"),
            domain_name: of("OS_DOMAIN_NAME"),
            domain_id: of("OS_DOMAIN_ID"),
            application_name: of("OS_APPLICATION_CREDENTIAL_NAME"),
            application_id: of("OS_APPLICATION_CREDENTIAL_ID"),
            application_secret: secret("OS_APPLICATION_CREDENTIAL_SECRET"),
        };
        if credentials.endpoint.is_empty() {
            Err(invalid_response_error(
                "missing environment variable [OS_AUTH_URL]",
            ))
        } else {
            Ok(credentials)
        }
    }

    /// Builds the part of the token request that authenticates the client, with a password or an
    /// application credential.
    async fn build_identity(&self) -> Result<Value, Error> {
        let password = reveal_password(&self.password).await?;
        if !password.is_empty() {
            let mut user = self.build_user()?;
            user["password"] = password.into();
            return Ok(json!({"auth": {"identity": {
                "methods": ["password"],
                "password": {"user": user},
            }}}));
        }
        let secret = reveal_password(&self.application_secret).await?;
        let application = match (self.application_id.as_str(), self.application_name.as_str()) {
            ("", "") => {
                return Err(invalid_response_error(
                    "you must provide a password or an application credential to authenticate",
                ));
            }
            _ if secret.is_empty() => {
                return Err(invalid_response_error(
                    "you must provide an application credential secret",
                ));
            }
            ("", name) => json!({"name": name, "user": self.build_user()?, "secret": secret}),
            (id, _) => json!({"id": id, "secret": secret}),
        };
        Ok(json!({"auth": {"identity": {
            "methods": ["application_credential"],
            "application_credential": application,
        }}}))
    }

    /// Builds the user object: by id, or by name and domain.
    fn build_user(&self) -> Result<Value, Error> {
        let is_by_application = self.password.is_none();
        match (self.user_id.as_str(), self.username.as_str()) {
            ("", "") => Err(invalid_response_error(
                "you must provide a username or a userid",
            )),
            (id, _) if !id.is_empty() && is_by_application => Ok(json!({"id": id})),
            (id, "") if self.domain_id.is_empty() && self.domain_name.is_empty() => {
                Ok(json!({"id": id}))
            }
            (_, "") => Err(invalid_response_error("a userid needs no domain")),
            ("", name) => Ok(json!({"name": name, "domain": self.build_domain()?})),
            _ => Err(invalid_response_error(
                "you must provide either a username or a userid",
            )),
        }
    }

    fn build_domain(&self) -> Result<Value, Error> {
        match (self.domain_id.as_str(), self.domain_name.as_str()) {
            ("", "") => Err(invalid_response_error(
                "you must provide a domain_id or a domain_name",
            )),
            ("", name) => Ok(json!({"name": name})),
            (id, "") => Ok(json!({"id": id})),
            _ => Err(invalid_response_error(
                "you must provide either a domain_id or a domain_name",
            )),
        }
    }

    /// Builds the scope of the token: the configured project, or `None` for the default of the
    /// user.
    fn build_scope(&self) -> Result<Option<Value>, Error> {
        Ok(
            match (self.project_id.as_str(), self.project_name.as_str()) {
                ("", "") => None,
                ("", name) => {
                    Some(json!({"project": {"name": name, "domain": self.build_domain()?}}))
                }
                (id, _) => Some(json!({"project": {"id": id}})),
            },
        )
    }
}
