//! Decoder of the events of a watch, which arrive as JSON lines in arbitrary pieces.
//!
//! Invariant: the resulting store does not depend on how the bytes are split. A malformed line ends
//! the watch, and the store keeps the effects of all lines before it.

use super::objects::{KubernetesResource, ObjectMeta};
use super::store::KubernetesStore;
use crate::api::invalid_response_error;
use firn_model::error::{Error, ErrorKind};
use serde::Deserialize;

/// Maximum size of an event in bytes. etcd, the database of Kubernetes, limits objects to 1.5 MiB.
pub(super) const EVENT_BYTES_MAX: usize = 16 << 20;

/// Status code for a resource version that is too old to watch from.
pub(super) const GONE: u16 = 410;

/// Applies the events of one watch to a part of a store.
pub(super) struct KubernetesEventApplier<'s, T> {
    store: &'s KubernetesStore<T>,
    part: usize,
    /// Beginning of a line whose end has not arrived yet.
    held: Vec<u8>,
}

#[derive(Deserialize)]
struct KubernetesEventKind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct KubernetesEvent<T> {
    object: T,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KubernetesBookmark {
    metadata: ObjectMeta,
}

/// Status object in an error event, such as an expired resource version.
#[derive(Default, Deserialize)]
#[serde(default)]
struct KubernetesStatus {
    code: u16,
    message: String,
}

impl<'s, T: KubernetesResource> KubernetesEventApplier<'s, T> {
    /// Creates a decoder at the beginning of a stream. Events change the part `part` of `store`.
    pub(super) fn new(store: &'s KubernetesStore<T>, part: usize) -> Self {
        let held = Vec::new();
        Self { store, part, held }
    }

    /// Applies the events in the next bytes of the stream and updates `version` to that of the last
    /// event. Returns [`ErrorKind::NotFound`] if the watched version is too old.
    pub(super) fn apply_bytes(&mut self, data: &[u8], version: &mut String) -> Result<(), Error> {
        // The buffered bytes contain no line end, so only the new bytes are searched.
        let mut rest = data;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.buffer_bytes(&rest[..end])?;
            rest = &rest[end + 1..];
            let line = std::mem::take(&mut self.held);
            self.apply_event(&line, version)?;
        }
        self.buffer_bytes(rest)
    }

    fn buffer_bytes(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.held.extend_from_slice(bytes);
        if self.held.len() > EVENT_BYTES_MAX {
            Err(invalid_response_error(format!(
                "event is too long: limit {EVENT_BYTES_MAX} bytes"
            )))
        } else {
            Ok(())
        }
    }

    fn apply_event(&self, line: &[u8], version: &mut String) -> Result<(), Error> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let kind: KubernetesEventKind = decode_event(line)?;
        match kind.kind.as_str() {
            "ADDED" | "MODIFIED" => {
                let KubernetesEvent { object } = decode_event::<KubernetesEvent<T>>(line)?;
                version.clone_from(&object.metadata().resource_version);
                self.store.set_object(self.part, object);
            }
            "DELETED" => {
                let KubernetesEvent { object } = decode_event::<KubernetesEvent<T>>(line)?;
                version.clone_from(&object.metadata().resource_version);
                self.store
                    .remove_object(self.part, &object.metadata().object_key());
            }
            "BOOKMARK" => {
                let KubernetesEvent { object } =
                    decode_event::<KubernetesEvent<KubernetesBookmark>>(line)?;
                *version = object.metadata.resource_version;
            }
            "ERROR" => {
                let KubernetesEvent { object } =
                    decode_event::<KubernetesEvent<KubernetesStatus>>(line)?;
                let kind = match object.code {
                    GONE => ErrorKind::NotFound,
                    _ => ErrorKind::Unavailable,
                };
                return Err(Error::new(kind, object.message));
            }
            other => {
                return Err(invalid_response_error(format!(
                    "unknown kind of event: {other:?}"
                )));
            }
        }
        Ok(())
    }
}

fn decode_event<'l, V: Deserialize<'l>>(line: &'l [u8]) -> Result<V, Error> {
    serde_json::from_slice(line)
        .map_err(|e| invalid_response_error(format!("cannot read an event: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::providers::kubernetes::objects::{KubernetesNode, KubernetesPod, KubernetesService};
    use crate::providers::kubernetes::roles;
    use crate::stub::damage_bytes;
    use firn_model::env::sim::SimRng;
    use std::sync::Arc;
    use tokio::sync::Notify;

    const STREAM: &str = concat!(
        r#"{"type":"ADDED","object":{"metadata":{"name":"a","namespace":"n","#,
        r#""resourceVersion":"6","labels":{"app":"x"}},"#,
        r#""spec":{"nodeName":"w","providerID":"p://1","type":"ClusterIP","#,
        r#""clusterIP":"10.0.0.1","ports":[{"name":"http","port":80,"protocol":"TCP"}],"#,
        r#""containers":[{"name":"c","image":"i","ports":[{"name":"m","containerPort":8080}]}]},"#,
        r#""status":{"podIP":"10.1.0.5","hostIP":"10.0.0.9","phase":"Running","#,
        r#""addresses":[{"type":"InternalIP","address":"10.0.0.2"}],"#,
        r#""conditions":[{"type":"Ready","status":"True"}],"#,
        r#""daemonEndpoints":{"kubeletEndpoint":{"Port":10250}}}}}"#,
        "\n\n",
        r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":"n","#,
        r#""resourceVersion":"7","annotations":{"b":"\u00e9"}}}}"#,
        "\n",
        r#"{"type":"DELETED","object":{"metadata":{"name":"b","resourceVersion":"8"}}}"#,
        "\r\n",
        r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}"#,
        "\n",
        r#"{"type":"ERROR","object":{"code":410,"message":"too old"}}"#,
        "\n",
    );

    /// Feeds `bytes` to a decoder in pieces. Returns the resulting store contents, version and
    /// outcome as text.
    fn watched<T: KubernetesResource + std::fmt::Debug>(
        bytes: &[u8],
        mut piece: impl FnMut() -> usize,
        targets: fn(&T) -> String,
    ) -> String {
        let store = KubernetesStore::<T>::new(Arc::new(Notify::new()));
        let mut events = KubernetesEventApplier::new(&store, store.add_part());
        let (mut version, mut rest) = (String::new(), bytes);
        let mut end = Ok(());
        while !rest.is_empty() && end.is_ok() {
            let (data, behind) = rest.split_at(piece().clamp(1, rest.len()));
            rest = behind;
            end = events.apply_bytes(data, &mut version);
        }
        let held = store.lock_for_reading();
        let all: Vec<String> = held
            .iter()
            .map(|o| format!("{o:?} {}", targets(o)))
            .collect();
        format!(
            "{} {version:?} {:?}",
            all.join(" "),
            end.map_err(|e| (e.kind, e.message))
        )
    }

    #[track_caller]
    fn check(bytes: &[u8], seed: u64) {
        let rng = SimRng::new(seed);
        let piece = || 1 + rng.next_below(64) as usize;
        let whole = || bytes.len();
        let node = |node: &KubernetesNode| format!("{:?}", roles::build_node_target(node));
        let ports = |one: &KubernetesService| {
            let mut groups = Vec::new();
            roles::push_service_targets(
                one,
                &crate::meta::MetaLabels::new("kubernetes"),
                &mut groups,
            );
            format!("{groups:?}")
        };
        let pod = |pod: &KubernetesPod| pod.metadata.object_key();
        let text = String::from_utf8_lossy(bytes);
        assert_eq!(
            watched(bytes, piece, node),
            watched(bytes, whole, node),
            "{seed}: {text}"
        );
        assert_eq!(
            watched(bytes, piece, ports),
            watched(bytes, whole, ports),
            "{seed}: {text}"
        );
        assert_eq!(
            watched(bytes, piece, pod),
            watched(bytes, whole, pod),
            "{seed}: {text}"
        );
    }

    #[test]
    fn events_in_any_pieces_and_with_any_damage_come_to_the_same() {
        check(STREAM.as_bytes(), 0);
        let parts: [&[u8]; 9] = [b"", b"{", b"}", b"[", b"\"", b":", b",", b"\n", b"\xff"];
        for seed in 0..2_000 {
            let rng = SimRng::new(seed);
            let mut bytes = STREAM.as_bytes().to_vec();
            for _ in 0..=rng.next_below(4) {
                damage_bytes(&mut bytes, &parts, &rng);
            }
            check(&bytes, seed);
        }
    }

    #[test]
    fn watch_that_is_too_old_says_so_behind_what_came_before() {
        let found = watched(
            STREAM.as_bytes(),
            || 7,
            |pod: &KubernetesPod| pod.metadata.object_key(),
        );
        assert!(
            found.ends_with(r#""9" Err((NotFound, "too old"))"#),
            "{found}"
        );
        assert!(found.contains(r#"resource_version: "7""#), "{found}");
    }
}
