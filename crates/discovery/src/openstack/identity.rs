//! Client of OpenStack's identity API (version 3): access tokens and the service catalog.

use super::{OpenStackCredentials, OpenStackSettings};
use crate::api::{Api, header_value, wrong};
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
pub(super) struct Session {
    pub(super) token: HeaderValue,
    catalog: Vec<Service>,
    region: String,
    availability: String,
}

answers! {
    struct Answer {
        token: Token,
    }

    struct Token {
        catalog: Vec<Service>,
    }

    struct Service {
        #[serde(rename = "type")]
        kind: String,
        endpoints: Vec<Endpoint>,
    }

    struct Endpoint {
        interface: String,
        region: String,
        region_id: String,
        url: String,
    }

    struct Versions {
        versions: Values,
    }

    struct Values {
        values: Vec<Version>,
    }

    struct Version {
        id: String,
        status: String,
        links: Vec<Link>,
    }

    struct Link {
        rel: String,
        href: String,
    }
}

impl Session {
    /// Requests a token with the credentials in the settings, or else those in the environment.
    pub(super) async fn open(
        api: &Api,
        settings: &OpenStackSettings,
        variables: &Variables,
    ) -> Result<Self, Error> {
        let credentials = match settings.credentials.endpoint.as_str() {
            "" => OpenStackCredentials::of_environment(variables)?,
            _ => settings.credentials.clone(),
        };
        let endpoint = endpoint(api, &credentials.endpoint).await?;
        let mut identity = credentials.identity().await?;
        if let Some(scope) = credentials.scope()? {
            identity["auth"]["scope"] = scope;
        }
        let json = HeaderValue::from_static("application/json");
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, json.clone()), (ACCEPT, json)]);
        let url = format!("{endpoint}auth/tokens");
        let answer = api.post(&url, &headers, identity.to_string().into());
        let answer = answer.await?.good()?;
        let mut token = header_value(answer.header(ISSUED))?;
        token.set_sensitive(true);
        let answer: Answer = answer.json().await?;
        Ok(Self {
            token,
            catalog: answer.token.catalog,
            region: settings.region.clone(),
            availability: settings.availability.clone(),
        })
    }

    /// Returns the base URL of a service in the configured region, with a trailing slash.
    pub(super) fn service(&self, kind: &str) -> Result<String, Error> {
        let services = self.catalog.iter().filter(|service| service.kind == kind);
        let mut endpoints = services.flat_map(|service| &service.endpoints);
        let found = endpoints.find(|endpoint| {
            let is_here = endpoint.region == self.region || endpoint.region_id == self.region;
            endpoint.interface == self.availability && (is_here || self.region.is_empty())
        });
        match found {
            Some(endpoint) => Ok(with_slash(&endpoint.url)),
            None => Err(wrong(format!(
                "could not create OpenStack {kind} session: no suitable endpoint could be found \
                 in the service catalog"
            ))),
        }
    }
}

fn with_slash(url: &str) -> String {
    format!("{}/", url.trim_end_matches('/'))
}

/// Returns the base URL of version 3 of the identity API. Requests the supported versions unless
/// `configured` contains the version.
async fn endpoint(api: &Api, configured: &str) -> Result<String, Error> {
    let endpoint = with_slash(configured);
    if endpoint.ends_with("/v3/") {
        return Ok(endpoint);
    }
    if endpoint.ends_with("/v2.0/") {
        return Err(wrong(format!(
            "version 2.0 of the identity API is not spoken: {configured}"
        )));
    }
    let answer = api.get(&endpoint, &HeaderMap::new()).await?;
    // Status 300 (multiple choices) is the regular response of an endpoint with several versions.
    let answer = match answer.status.as_u16() {
        300 => answer,
        _ => answer.good()?,
    };
    let versions: Versions = answer.json().await?;
    let is_good = |version: &&Version| {
        let status = version.status.to_ascii_lowercase();
        version.id.contains("v3") && matches!(status.as_str(), "current" | "supported" | "stable")
    };
    let found = versions.versions.values.iter().find(is_good);
    let mut links = found.into_iter().flat_map(|version| &version.links);
    let link = links.rfind(|link| link.rel == "self");
    match link {
        Some(link) => Ok(with_slash(&link.href)),
        None => Err(wrong(format!(
            "no supported version available from endpoint {endpoint}"
        ))),
    }
}

async fn text_of(secret: &Option<Secret>) -> Result<String, Error> {
    match secret {
        Some(secret) => reveal(secret, "password").await,
        None => Ok(String::new()),
    }
}

impl OpenStackCredentials {
    fn of_environment(variables: &Variables) -> Result<Self, Error> {
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
        match credentials.endpoint.is_empty() {
            true => Err(wrong("missing environment variable [OS_AUTH_URL]")),
            false => Ok(credentials),
        }
    }

    /// Builds the part of the token request that authenticates the client, with a password or an
    /// application credential.
    async fn identity(&self) -> Result<Value, Error> {
        let password = text_of(&self.password).await?;
        if !password.is_empty() {
            let mut user = self.user()?;
            user["password"] = password.into();
            return Ok(json!({"auth": {"identity": {
                "methods": ["password"],
                "password": {"user": user},
            }}}));
        }
        let secret = text_of(&self.application_secret).await?;
        let application = match (self.application_id.as_str(), self.application_name.as_str()) {
            ("", "") => {
                return Err(wrong(
                    "you must provide a password or an application credential to authenticate",
                ));
            }
            _ if secret.is_empty() => {
                return Err(wrong("you must provide an application credential secret"));
            }
            ("", name) => json!({"name": name, "user": self.user()?, "secret": secret}),
            (id, _) => json!({"id": id, "secret": secret}),
        };
        Ok(json!({"auth": {"identity": {
            "methods": ["application_credential"],
            "application_credential": application,
        }}}))
    }

    /// Builds the user object: by id, or by name and domain.
    fn user(&self) -> Result<Value, Error> {
        let is_by_application = self.password.is_none();
        match (self.user_id.as_str(), self.username.as_str()) {
            ("", "") => Err(wrong("you must provide a username or a userid")),
            (id, _) if !id.is_empty() && is_by_application => Ok(json!({"id": id})),
            (id, "") if self.domain_id.is_empty() && self.domain_name.is_empty() => {
                Ok(json!({"id": id}))
            }
            (_, "") => Err(wrong("a userid needs no domain")),
            ("", name) => Ok(json!({"name": name, "domain": self.domain()?})),
            _ => Err(wrong("you must provide either a username or a userid")),
        }
    }

    fn domain(&self) -> Result<Value, Error> {
        match (self.domain_id.as_str(), self.domain_name.as_str()) {
            ("", "") => Err(wrong("you must provide a domain_id or a domain_name")),
            ("", name) => Ok(json!({"name": name})),
            (id, "") => Ok(json!({"id": id})),
            _ => Err(wrong(
                "you must provide either a domain_id or a domain_name",
            )),
        }
    }

    /// Builds the scope of the token: the configured project, or `None` for the default of the
    /// user.
    fn scope(&self) -> Result<Option<Value>, Error> {
        Ok(
            match (self.project_id.as_str(), self.project_name.as_str()) {
                ("", "") => None,
                ("", name) => Some(json!({"project": {"name": name, "domain": self.domain()?}})),
                (id, _) => Some(json!({"project": {"id": id}})),
            },
        )
    }
}
