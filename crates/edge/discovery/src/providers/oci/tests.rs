//! Tests of OCI discovery against stub services that follow Oracle's documentation.

use super::*;
use crate::stub::{ManualRefresh, StubRoutes};
use firn_model::env::sim::SimClock;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};

const ROOT: &str = "/20160918/compartments?accessLevel=ACCESSIBLE&compartmentId=t\
                    &compartmentIdInSubtree=false&limit=100";
const BELOW: &str = "/20160918/compartments?accessLevel=ACCESSIBLE&compartmentId=c1\
                     &compartmentIdInSubtree=false&limit=100";
const OF_ROOT: &str = "/20160918/instances?compartmentId=t&limit=100";
const OF_ONE: &str = "/20160918/instances?compartmentId=c1&limit=100";
const CARDS: &str = "/20160918/vnicAttachments?compartmentId=c1&instanceId=i1&limit=100";
const NO_CARDS: &str = "/20160918/vnicAttachments?compartmentId=c1&instanceId=i2&limit=100";

const INSTANCES: &str = r#"[
 {"id": "i1", "compartmentId": "c1", "displayName": "web", "lifecycleState": "RUNNING",
  "shape": "VM.Standard.E4.Flex", "availabilityDomain": "Uocm:PHX-AD-1",
  "faultDomain": "FAULT-DOMAIN-2", "region": "phx", "imageId": "img",
  "freeformTags": {"my team": "a"},
  "definedTags": {"Oper-ations": {"Cost.Center": 42, "live": true, "list": [1], "half": 0.5}}},
 {"id": "i2", "compartmentId": "c1"}, {"id": "i3"}]"#;

const ATTACHMENTS: &str = r#"[{"vnicId": "v0", "lifecycleState": "DETACHED"},
  {"lifecycleState": "ATTACHED"}, {"vnicId": "v1", "lifecycleState": "ATTACHED"},
  {"vnicId": "v2", "lifecycleState": "ATTACHED"}]"#;

const CARD: &str = r#"{"id": "v2", "isPrimary": true, "privateIp": "10.0.0.2",
  "publicIp": "203.0.113.1", "hostnameLabel": "web", "ipv6Addresses": ["2001:db8::2",
  "2001:db8::1"]}"#;

async fn oracle() -> StubRoutes {
    StubRoutes::start(&[
        (
            ROOT,
            r#"[{"id": "c1", "lifecycleState": "ACTIVE"}, {"id": "c2"}]"#,
        ),
        (BELOW, "[]"),
        (OF_ROOT, "[]"),
        (OF_ONE, INSTANCES),
        (CARDS, ATTACHMENTS),
        (NO_CARDS, "[]"),
        ("/20160918/vnics/v1", r#"{"id": "v1", "isPrimary": false}"#),
        ("/20160918/vnics/v2", CARD),
    ])
    .await
}

fn settings() -> OciSettings {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../lib/http_client/src/tests/keys"
    );
    OciSettings {
        is_machine: false,
        tenancy: "t".into(),
        user: "u".into(),
        fingerprint: "f".into(),
        key_file: format!("{folder}/pkcs8-aes256.pem").into(),
        key_passphrase: Some(Secret::Inline("secret".into())),
        region: "phx".into(),
        compartments: Vec::new(),
        port: 9100,
        refresh: Duration::from_secs(60),
        client: HttpSettings::default(),
    }
}

fn instances(answers: &StubRoutes, settings: &OciSettings) -> ManualRefresh {
    let endpoints = OciEndpoints {
        identity: answers.url().to_owned(),
        compute: answers.url().to_owned(),
    };
    let clock = Arc::new(SimClock::default());
    clock.advance_ms(784_111_777_000);
    let signer = OciSigner::new(settings, clock);
    ManualRefresh::new(OciDiscovery::with_endpoints(
        endpoints,
        settings,
        1 << 20,
        signer,
    ))
}

const TARGET: &str = "10.0.0.2:9100 oci_availability_domain=Uocm:PHX-AD-1 oci_compartment_id=c1 \
     oci_defined_tag_Oper_ations_Cost_Center=42 oci_defined_tag_Oper_ations_half=0.5 \
     oci_defined_tag_Oper_ations_live=true oci_fault_domain=FAULT-DOMAIN-2 \
     oci_hostname_label=web oci_image_id=img oci_instance_id=i1 oci_instance_name=web \
     oci_instance_shape=VM.Standard.E4.Flex oci_instance_state=RUNNING \
     oci_ipv6_addresses=,2001:db8::1,2001:db8::2, oci_private_ip=10.0.0.2 \
     oci_public_ip=203.0.113.1 oci_region=phx oci_tag_my_team=a oci_tenancy_id=t oci_vnic_id=v2";

#[tokio::test]
async fn instances_of_all_compartments_become_targets_by_their_primary_card() {
    let answers = oracle().await;
    let mut oracle = instances(&answers, &settings());
    assert_eq!(oracle.refresh_targets().await, [TARGET]);
    // Compartments below one that cannot be listed are left out; its own instances are not.
    answers.set_response(BELOW, 404, "{}");
    assert_eq!(oracle.refresh_targets().await, [TARGET]);
    oracle.check_targets_kept(&answers, OF_ONE).await;
    let card = r#"{"isPrimary": true, "ipv6Addresses": ["2001:db8::1"]}"#;
    answers.set_response("/20160918/vnics/v2", 200, card);
    let told = oracle.refresh_targets().await.remove(0);
    assert!(told.starts_with("[2001:db8::1]:9100 "), "{told}");
    answers.set_response("/20160918/vnics/v2", 500, "");
    assert_eq!(oracle.refresh_targets().await, [""; 0]);
    let named = OciSettings {
        compartments: vec!["c1".into()],
        ..settings()
    };
    let before = answers.stub.received_paths().len();
    answers.set_response("/20160918/vnics/v2", 200, CARD);
    assert_eq!(
        instances(&answers, &named).refresh_targets().await,
        [TARGET]
    );
    assert_eq!(answers.stub.received_paths()[before], OF_ONE);
}

#[tokio::test]
async fn requests_are_signed_by_the_key_that_the_passphrase_opens() {
    let answers = oracle().await;
    instances(&answers, &settings()).refresh_targets().await;
    let asked = answers.stub.received_requests().remove(0);
    let date = asked.headers["date"].to_str().unwrap();
    assert_eq!(date, "Sun, 06 Nov 1994 08:49:37 GMT");
    let value = asked.headers["authorization"].to_str().unwrap();
    let (head, rest) = value.split_once(",signature=\"").unwrap();
    assert_eq!(
        head,
        "Signature version=\"1\",headers=\"date (request-target) host\",keyId=\"t/u/f\",\
         algorithm=\"rsa-sha256\""
    );
    use base64::Engine;
    let signature = base64::prelude::BASE64_STANDARD.decode(rest.trim_end_matches('"'));
    let host = answers.url().trim_start_matches("http://");
    let text = format!("date: {date}\n(request-target): get {ROOT}\nhost: {host}");
    let pem = include_bytes!("../../../../../lib/http_client/src/tests/keys/pkcs1.pem");
    let key = firn_http_client::key_of_pem(pem, "").unwrap();
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public().as_ref());
    key.verify(text.as_bytes(), &signature.unwrap()).unwrap();
}

#[tokio::test]
async fn wrong_key_is_told() {
    let answers = oracle().await;
    for (passphrase, why) in [
        (None, "decrypt private key"),
        (Some("x"), "decrypt private key"),
    ] {
        let settings = OciSettings {
            key_passphrase: passphrase.map(|text: &str| Secret::Inline(text.into())),
            compartments: vec!["c1".into()],
            ..settings()
        };
        let endpoints = OciEndpoints {
            identity: String::new(),
            compute: answers.url().to_owned(),
        };
        let clock = Arc::new(SimClock::default());
        let signer = OciSigner::new(&settings, clock);
        let mut instances = OciDiscovery::with_endpoints(endpoints, &settings, 1 << 20, signer);
        let told = instances.refresh().await.unwrap_err().to_string();
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn region_has_its_realms_domain() {
    for (name, region, domain) in [
        ("phx", "us-phoenix-1", "oraclecloud.com"),
        ("EU-Frankfurt-1", "eu-frankfurt-1", "oraclecloud.com"),
        ("us-langley-1", "us-langley-1", "oraclegovcloud.com"),
        ("xx-new-1", "xx-new-1", "oraclecloud.com"),
    ] {
        assert_eq!(realms::resolve_region(name), (region.to_owned(), domain));
    }
}

/// Starts stubs of a machine's metadata service and the auth service. The key belongs to the
/// certificate, and tokens expire after an hour.
async fn machine() -> StubRoutes {
    use base64::Engine;
    let encode = |text: &str| base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(text);
    let token = format!("{}.{}.x", encode("{}"), encode(r#"{"exp": 784115377}"#));
    let answers = oracle().await;
    let leaf = include_str!("leaf.pem");
    answers.set_response("/opc/instance/region", 200, "phx");
    answers.set_response("/opc/identity/cert.pem", 200, leaf);
    answers.set_response("/opc/identity/intermediate.pem", 200, leaf);
    let key = include_str!("../../../../../lib/http_client/src/tests/keys/pkcs1.pem");
    answers.set_response("/opc/identity/key.pem", 200, key);
    let granted = format!("{{\"token\": \"{token}\"}}");
    answers.set_response("/v1/x509", 200, &granted);
    answers
}

/// Creates a discovery that authenticates as the machine of `answers`, with its clock.
fn of_machine(answers: &StubRoutes) -> (OciDiscovery, Arc<SimClock>) {
    let url = answers.url().to_owned();
    let variables = move |name: &str| match name {
        "OCI_METADATA_BASE_URL" => Some(format!("{url}/opc")),
        "OCI_SDK_AUTH_CLIENT_REGION_URL" => Some(url.clone()),
        _ => None,
    };
    let clock = Arc::new(SimClock::default());
    clock.advance_ms(784_111_777_000);
    let settings = OciSettings {
        is_machine: true,
        tenancy: String::new(),
        compartments: vec!["c1".into()],
        ..settings()
    };
    let machine = machine::OciInstancePrincipal::with_variables(
        &settings.client,
        clock.clone(),
        Arc::new(variables),
    );
    let signer = OciSigner::for_instance_principal(machine, clock.clone());
    let endpoints = OciEndpoints {
        identity: answers.url().to_owned(),
        compute: answers.url().to_owned(),
    };
    (
        OciDiscovery::with_endpoints(endpoints, &settings, 1 << 20, signer),
        clock,
    )
}

#[tokio::test]
async fn machine_asks_with_a_token_that_its_certificate_buys() {
    let answers = machine().await;
    let (mut instances, clock) = of_machine(&answers);
    let groups = instances.refresh().await.unwrap();
    assert_eq!(groups.len(), 1);
    let asked = answers.stub.received_requests();
    let bought = asked.iter().find(|asked| asked.path == "/v1/x509").unwrap();
    let body: Value = serde_json::from_str(&bought.body).unwrap();
    assert_eq!(body["fingerprintAlgorithm"], "SHA256");
    assert_eq!(body["certificate"], body["intermediateCertificates"][0]);
    let text = |name: &str| bought.headers[name].to_str().unwrap().to_owned();
    let value = text("authorization");
    let (head, rest) = value.split_once(",signature=\"").unwrap();
    let names = "date (request-target) content-length content-type x-content-sha256";
    assert!(
        head.starts_with(&format!(
            "Signature version=\"1\",headers=\"{names}\",\
             keyId=\"ocid1.tenancy.oc1..t/fed-x509-sha256/"
        )),
        "{head}"
    );
    use base64::Engine;
    let signature = base64::prelude::BASE64_STANDARD.decode(rest.trim_end_matches('"'));
    let signed = format!(
        "date: {}\n(request-target): post /v1/x509\ncontent-length: {}\n\
         content-type: application/json\nx-content-sha256: {}",
        text("date"),
        text("content-length"),
        text("x-content-sha256")
    );
    let key = base64::prelude::BASE64_STANDARD.decode(body["publicKey"].as_str().unwrap());
    // ring expects the public key without the 24-byte header of its DER form.
    let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.unwrap().split_off(24));
    key.verify(signed.as_bytes(), &signature.unwrap()).unwrap();
    let metadata = asked.iter().find(|asked| asked.path.starts_with("/opc"));
    let said = metadata.unwrap().headers["authorization"].to_str().unwrap();
    assert_eq!(said, "Bearer Oracle");
    let listed = asked.iter().find(|asked| asked.path == OF_ONE).unwrap();
    let said = listed.headers["authorization"].to_str().unwrap();
    assert!(said.contains("keyId=\"ST$e30."), "{said}");
    // One token is enough until shortly before it expires.
    let bought = |answers: &StubRoutes| {
        let paths = answers.stub.received_paths();
        paths.iter().filter(|path| *path == "/v1/x509").count()
    };
    clock.advance_ms(54 * 60_000);
    instances.refresh().await.unwrap();
    assert_eq!(bought(&answers), 1);
    clock.advance_ms(2 * 60_000);
    instances.refresh().await.unwrap();
    assert_eq!(bought(&answers), 2);
}

#[tokio::test]
async fn machine_that_cannot_say_who_it_is_finds_nothing_and_says_why() {
    for (path, answer, why) in [
        ("/opc/identity/cert.pem", "no", "no certificate"),
        (
            "/opc/identity/cert.pem",
            include_str!("../../../../../lib/http_client/src/tests/keys/leaf.pem"),
            "names no tenancy",
        ),
        ("/v1/x509", r#"{"token": "a.b"}"#, "three parts"),
        ("/v1/x509", "{}", "three parts"),
    ] {
        let answers = machine().await;
        answers.set_response(path, 200, answer);
        let (mut instances, _) = of_machine(&answers);
        let told = instances.refresh().await.unwrap_err().to_string();
        assert!(told.contains(why), "{path}: {told}");
    }
    let answers = machine().await;
    answers.set_response("/opc/identity/key.pem", 404, "");
    let (mut instances, _) = of_machine(&answers);
    let told = instances.refresh().await.unwrap_err().to_string();
    assert!(told.contains("/opc/identity/key.pem: "), "{told}");
}
