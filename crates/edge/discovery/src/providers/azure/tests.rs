//! Tests of Azure discovery and authentication against stub servers that follow Microsoft's
//! documentation.

use super::identity::AzureTokenIssuer;
use super::*;
use crate::discover::Refresh;
use crate::stub::{
    ManualRefresh, StubRequest, StubResponse, StubRoutes, StubServer, format_targets,
};
use firn_http_client::{HttpSettings, Secret};
use firn_model::env::sim::SimClock;
use std::sync::Arc;
use std::time::Duration;

const MACHINES: &str = "/subscriptions/s/providers/Microsoft.Compute/virtualMachines\
                        ?api-version=2024-03-01";
const SETS: &str = "/subscriptions/s/providers/Microsoft.Compute/virtualMachineScaleSets\
                    ?api-version=2024-03-01";
const OF_SET: &str = "/subscriptions/s/resourceGroups/RG2/providers/Microsoft.Compute/\
                      virtualMachineScaleSets/set/virtualMachines?api-version=2024-03-01";
const NIC: &str = "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Network/\
                   networkInterfaces/nic1?%24expand=IPConfigurations%2FPublicIPAddress\
                   &api-version=2023-05-01";
const NIC_OFF: &str = "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Network/\
                       networkInterfaces/off?%24expand=IPConfigurations%2FPublicIPAddress\
                       &api-version=2023-05-01";
const NIC_OF_SET: &str = "/subscriptions/s/resourceGroups/RG2/providers/microsoft.Compute/\
                          virtualMachineScaleSets/set/virtualMachines/7/networkInterfaces/n\
                          ?%24expand=IPConfigurations%2FPublicIPAddress&api-version=2018-10-01";

const ONE: &str = r#"{"value": [{
  "id": "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/vm1",
  "name": "vm1", "type": "Microsoft.Compute/virtualMachines", "location": "westeurope",
  "tags": {"env-x": "prod"}, "properties": {
    "hardwareProfile": {"vmSize": "Standard_B1s"}, "osProfile": {"computerName": "host1"},
    "storageProfile": {"osDisk": {"osType": "Linux"}},
    "networkProfile": {"networkInterfaces": [{"id":
      "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Network/networkInterfaces/nic1"}]}}}],
  "nextLink": "$URL/next"}"#;

const REST: &str = r#"{"value": [
 {"id": "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/off",
  "name": "off", "properties": {"networkProfile": {"networkInterfaces": [{"id":
   "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Network/networkInterfaces/off"}]}}},
 {"id": "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/gone",
  "name": "gone", "properties": {"networkProfile": {"networkInterfaces": [{"id":
   "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Network/networkInterfaces/gone"}]}}},
 {"id": "/subscriptions/s/resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/none",
  "name": "none"}]}"#;

const VM_OF_SET: &str = r#"{"value": [{"id": "/subscriptions/s/resourceGroups/RG2/providers/\
Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/7", "name": "set_7",
  "instanceId": "7", "location": "westeurope", "properties": {"networkProfile":
  {"networkInterfaces": [{"id": "/subscriptions/s/resourceGroups/RG2/providers/Microsoft.Compute/\
virtualMachineScaleSets/set/virtualMachines/7/networkInterfaces/n"}]}}}]}"#;

const INTERFACE: &str = r#"{"properties": {"primary": true, "ipConfigurations": [{"properties": {
  "privateIPAddress": "10.0.0.4", "publicIPAddress": {"properties": {"ipAddress": "20.1.1.1"}}}}]}}"#;

fn settings(identity: AzureIdentity) -> AzureSettings {
    AzureSettings {
        environment: "AzurePublicCloud".into(),
        subscription: "s".into(),
        tenant: "t".into(),
        identity,
        resource_group: String::new(),
        port: 80,
        refresh: Duration::from_secs(300),
        client: HttpSettings::default(),
    }
}

fn by_secret() -> AzureIdentity {
    AzureIdentity::Secret {
        tenant: "t".into(),
        client: "c".into(),
        secret: Secret::Inline("sec".into()),
    }
}

/// Creates a discovery for the API at `url`, with the given identity and environment variables.
fn machines(
    url: &str,
    identity: AzureIdentity,
    variables: &[(&'static str, String)],
    clock: Arc<SimClock>,
) -> AzureDiscovery {
    let settings = settings(identity);
    let scope = "https://management.core.windows.net//.default";
    let client = HttpSettings::default();
    let mut account = AzureTokenIssuer::new(AzureCloud::Public, &settings.identity, scope, &client);
    account.authority = url.to_owned();
    let variables = variables.to_vec();
    account.variables = Arc::new(move |name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| value.clone())
    });
    AzureDiscovery::with_access(Ok((url.to_owned(), account)), &settings, 1 << 20, clock)
}

#[tokio::test]
async fn azure_machines_become_targets_and_their_interfaces_are_kept() {
    let sets = r#"{"value": [{"id": "/subscriptions/s/resourceGroups/RG2/providers/x/y/set",
                  "name": "set"}]}"#;
    let off = r#"{"properties": {"ipConfigurations": []}}"#;
    let of_set = INTERFACE.replace("10.0.0.4", "10.0.0.7");
    let answers = StubRoutes::start(&[
        (
            "/t/oauth2/v2.0/token",
            r#"{"access_token": "tok", "expires_in": 86400}"#,
        ),
        (SETS, sets),
        ("/next", REST),
        (OF_SET, &VM_OF_SET.replace("\\\n", "")),
        (NIC, INTERFACE),
        (NIC_OFF, off),
        (NIC_OF_SET, &of_set),
    ])
    .await;
    answers.set_response(MACHINES, 200, ONE);
    let clock = Arc::new(SimClock::default());
    let mut machines = ManualRefresh::new(machines(answers.url(), by_secret(), &[], clock.clone()));
    let want = [
        "10.0.0.4:80 azure_machine_computer_name=host1 azure_machine_id=/subscriptions/s/\
         resourceGroups/RG/providers/Microsoft.Compute/virtualMachines/vm1 \
         azure_machine_location=westeurope azure_machine_name=vm1 azure_machine_os_type=Linux \
         azure_machine_private_ip=10.0.0.4 azure_machine_public_ip=20.1.1.1 \
         azure_machine_resource_group=RG azure_machine_size=Standard_B1s \
         azure_machine_tag_env_x=prod azure_subscription_id=s azure_tenant_id=t",
        "10.0.0.7:80 azure_machine_id=/subscriptions/s/resourceGroups/RG2/providers/\
         Microsoft.Compute/virtualMachineScaleSets/set/virtualMachines/7 \
         azure_machine_location=westeurope azure_machine_name=set_7 \
         azure_machine_private_ip=10.0.0.7 azure_machine_public_ip=20.1.1.1 \
         azure_machine_resource_group=RG2 azure_machine_scale_set=set azure_subscription_id=s \
         azure_tenant_id=t",
    ];
    assert_eq!(machines.refresh_targets().await, want);
    let token = &answers.stub.received_requests()[0];
    assert_eq!(
        token.body,
        "client_id=c&grant_type=client_credentials\
         &scope=https%3A%2F%2Fmanagement.core.windows.net%2F%2F.default&client_secret=sec"
    );
    assert_eq!(
        answers.stub.received_requests()[1].headers["authorization"],
        "Bearer tok"
    );
    machines.check_targets_kept(&answers, MACHINES).await;
    machines.check_targets_kept(&answers, SETS).await;
    machines.check_targets_kept(&answers, OF_SET).await;
    let count = |path: &str| {
        answers
            .stub
            .received_paths()
            .iter()
            .filter(|p| *p == path)
            .count()
    };
    assert_eq!((count(NIC), count(NIC_OFF)), (1, 1), "they are kept");
    clock.advance_ms(13 * 300_000);
    answers.set_response(NIC, 500, "");
    assert_eq!(
        machines.refresh_targets().await,
        want,
        "an interface that cannot be asked for"
    );
    assert_eq!(count(NIC), 2);
    answers.set_response(NIC, 404, "");
    assert_eq!(
        machines.refresh_targets().await,
        want[1..],
        "a machine without interface"
    );
    answers.set_response(SETS, 200, r#"{"value": []}"#);
    assert_eq!(machines.refresh_targets().await, [""; 0]);
}

#[tokio::test]
async fn tokens_are_bought_as_the_settings_and_the_environment_say() {
    let stub = StubServer::start(|asked: StubRequest| async move {
        match asked.path.split('?').next().unwrap() {
            "/t/oauth2/v2.0/token" | "/env/oauth2/v2.0/token" => {
                StubResponse::with_status(200, r#"{"access_token": "t", "expires_in": 3600}"#)
            }
            "/metadata/identity/oauth2/token" | "/service" => {
                StubResponse::with_status(200, r#"{"access_token": "t", "expires_in": "3600"}"#)
            }
            _ => StubResponse::with_status(200, r#"{"value": []}"#),
        }
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "jwt\n").unwrap();
    let text = |text: &str| text.to_owned();
    let machine = vec![("AZURE_POD_IDENTITY_AUTHORITY_HOST", stub.url.clone())];
    let service = vec![
        ("IDENTITY_ENDPOINT", format!("{}/service", stub.url)),
        ("IDENTITY_HEADER", text("h")),
    ];
    let workload = vec![
        ("AZURE_FEDERATED_TOKEN_FILE", text(file.to_str().unwrap())),
        ("AZURE_TENANT_ID", text("env")),
        ("AZURE_CLIENT_ID", text("ec")),
    ];
    let secret = [&workload[..], &[("AZURE_CLIENT_SECRET", text("es"))]].concat();
    let managed = |client: &str| AzureIdentity::Managed {
        client: client.into(),
    };
    let sdk = || AzureIdentity::Sdk { tenant: text("t") };
    let of_workload = |tenant: &str, client: &str| AzureIdentity::Workload {
        tenant: tenant.into(),
        client: client.into(),
        file: None,
    };
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../lib/http_client/src/tests/keys"
    );
    let certificate = |file: &str, password: &str| AzureIdentity::Certificate {
        tenant: text("t"),
        client: text("c"),
        file: format!("{folder}/{file}").into(),
        key_file: (file == "leaf.pem").then(|| format!("{folder}/pkcs1.pem").into()),
        password: Secret::Inline(password.into()),
        sends_chain: false,
    };
    let pfx = format!("{folder}/modern.pfx");
    let of_environment = vec![
        ("AZURE_CLIENT_CERTIFICATE_PATH", pfx),
        ("AZURE_CLIENT_CERTIFICATE_PASSWORD", text("secret")),
        ("AZURE_CLIENT_ID", text("ec")),
    ];
    let signed = "client_assertion=eyJ";
    let resource = "resource=https%3A%2F%2Fmanagement.core.windows.net%2F";
    let imds = format!("/metadata/identity/oauth2/token?api-version=2018-02-01&{resource}");
    for (identity, environment, path, body) in [
        (managed(""), &machine, imds.clone(), ""),
        (managed("c"), &machine, format!("{imds}&client_id=c"), ""),
        (
            managed(""),
            &service,
            format!("/service?api-version=2019-08-01&{resource}"),
            "",
        ),
        (
            of_workload("", ""),
            &workload,
            text("/env/oauth2/v2.0/token"),
            "client_assertion=jwt&",
        ),
        (
            of_workload("t", "c"),
            &workload,
            text("/t/oauth2/v2.0/token"),
            "client_id=c&",
        ),
        (
            sdk(),
            &secret,
            text("/env/oauth2/v2.0/token"),
            "client_secret=es",
        ),
        (
            sdk(),
            &workload,
            text("/t/oauth2/v2.0/token"),
            "client_assertion=jwt",
        ),
        (sdk(), &machine, imds, ""),
        (
            certificate("leaf.pem", ""),
            &machine,
            text("/t/oauth2/v2.0/token"),
            signed,
        ),
        (
            certificate("modern.pfx", "secret"),
            &machine,
            text("/t/oauth2/v2.0/token"),
            signed,
        ),
        (sdk(), &of_environment, text("/t/oauth2/v2.0/token"), signed),
    ] {
        let before = stub.received_requests().len();
        let clock = Arc::new(SimClock::default());
        let mut machines = machines(&stub.url, identity.clone(), environment, clock);
        assert_eq!(format_targets(&machines.refresh().await.unwrap()), [""; 0]);
        let asked = &stub.received_requests()[before];
        assert_eq!(asked.path, path, "{identity:?}");
        assert!(asked.body.contains(body), "{identity:?} {}", asked.body);
    }
}

#[tokio::test]
async fn environment_that_there_is_not_is_named() {
    let settings = AzureSettings {
        environment: "Moon".into(),
        ..settings(by_secret())
    };
    let clock = Arc::new(SimClock::default());
    let mut machines = AzureDiscovery::new(&settings, 1 << 20, clock);
    let e = machines.refresh().await.unwrap_err();
    let want = "there is no cloud configuration matching the name \"Moon\"";
    assert!(e.message.ends_with(want), "{e}");
}
