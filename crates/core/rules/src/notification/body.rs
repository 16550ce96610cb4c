//! Request bodies of the Alertmanager API v2: a list of alerts in JSON.

use super::AlertNotification;
use crate::instant::RuleInstant;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::sync::Arc;
use time::OffsetDateTime;

/// Serializes a batch of notifications as JSON, in the format that Alertmanager's `POST
/// /api/v2/alerts` expects.
pub fn encode_notifications(
    batch: &[Arc<AlertNotification>],
) -> Result<Vec<u8>, serde_json::Error> {
    let documents: Vec<NotificationBody<'_>> =
        batch.iter().map(|sent| NotificationBody(sent)).collect();
    serde_json::to_vec(&documents)
}

struct NotificationBody<'n>(&'n AlertNotification);

impl Serialize for NotificationBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let sent = self.0;
        let mut map = serializer.serialize_map(None)?;
        let annotations: Vec<_> = sent
            .annotations
            .iter()
            .map(|(n, v)| (&n[..], v.clone()))
            .collect();
        if !annotations.is_empty() {
            map.serialize_entry("annotations", &SortedTextMap(annotations))?;
        }
        map.serialize_entry("endsAt", &format_date_time(sent.ends_at))?;
        map.serialize_entry("startsAt", &format_date_time(sent.starts_at))?;
        if !sent.generator_url.is_empty() {
            map.serialize_entry("generatorURL", &*sent.generator_url)?;
        }
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let labels = sent.labels.iter().map(|(name, value)| (name, text(value)));
        map.serialize_entry("labels", &SortedTextMap(labels.collect()))?;
        map.end()
    }
}

/// Names and texts that are serialized as a JSON object in the given order, which is sorted by
/// name.
struct SortedTextMap<'n>(Vec<(&'n str, String)>);

impl Serialize for SortedTextMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, text)| (name, text)))
    }
}

/// Formats a time in UTC with milliseconds. `None` becomes Go's zero time.
fn format_date_time(instant: Option<RuleInstant>) -> String {
    let nanos = instant.map(|instant| i128::from(instant.nanos()));
    let date = nanos.and_then(|nanos| OffsetDateTime::from_unix_timestamp_nanos(nanos).ok());
    let Some(date) = date else {
        return "0001-01-01T00:00:00.000Z".to_owned();
    };
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        date.hour(),
        date.minute(),
        date.second(),
        date.millisecond()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use firn_model::labels::Labels;

    #[test]
    fn body_is_what_the_api_takes() {
        let firing = AlertNotification {
            labels: Labels::from_pairs([("alertname", "A"), ("path", "\"<x>")]),
            annotations: vec![("summary".into(), "it\nfires".into())],
            starts_at: Some(RuleInstant::from_ms(1_700_000_000_123)),
            ends_at: Some(RuleInstant::from_nanos(1_700_000_001_999_999_999)),
            generator_url: "http://x/graph".into(),
        };
        let bare = AlertNotification {
            labels: Labels::from_pairs([("alertname", "B")]),
            annotations: Vec::new(),
            starts_at: None,
            ends_at: None,
            generator_url: "".into(),
        };
        let body = encode_notifications(&[Arc::new(firing), Arc::new(bare)]).unwrap();
        assert_eq!(
            String::from_utf8(body).unwrap(),
            concat!(
                r#"[{"annotations":{"summary":"it\nfires"},"endsAt":"2023-11-14T22:13:21.999Z","#,
                r#""startsAt":"2023-11-14T22:13:20.123Z","generatorURL":"http://x/graph","#,
                r#""labels":{"alertname":"A","path":"\"<x>"}},"#,
                r#"{"endsAt":"0001-01-01T00:00:00.000Z","startsAt":"0001-01-01T00:00:00.000Z","#,
                r#""labels":{"alertname":"B"}}]"#
            )
        );
    }
}
