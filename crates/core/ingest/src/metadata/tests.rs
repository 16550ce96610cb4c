//! Tests pushed metadata over several requests, restarts, damage and a full table.

use super::file::{decode, encode};
use super::*;
use firn_model::env::sim::SimDisk;
use firn_model::env::sim::SimRng;

fn batch(said: &[(&str, MetricType, &str, &str)]) -> MetadataBatch {
    let mut batch = MetadataBatch::default();
    for (name, kind, help, unit) in said {
        batch.push(MetricMetadata {
            name,
            kind: *kind,
            help,
            unit,
        });
    }
    batch
}

fn known(metadata: &PushedMetadata, name: &str) -> Option<(&'static str, String, String)> {
    let found = metadata.find_family(&TenantId::anonymous(), name)?;
    Some((found.kind, found.help, found.unit))
}

#[test]
fn pushed_metadata_is_the_newest_of_the_family() {
    let metadata = PushedMetadata::default();
    let tenant = TenantId::anonymous();
    let first = batch(&[
        ("a_total", MetricType::Counter, "A.", ""),
        ("h_bucket", MetricType::Histogram, "H.", "seconds"),
        ("h_count", MetricType::Histogram, "H.", "seconds"),
        ("s_sum", MetricType::Summary, "S.", ""),
        ("g_bucket", MetricType::Gauge, "G.", ""),
        ("_sum", MetricType::Summary, "", ""),
    ]);
    assert_eq!(
        metadata.record_metadata(&tenant, MetadataNameKind::Series, &first, 1),
        0
    );
    let is = |kind, help: &str, unit: &str| Some((kind, help.to_owned(), unit.to_owned()));
    assert_eq!(known(&metadata, "a_total"), is("counter", "A.", ""));
    assert_eq!(known(&metadata, "h"), is("histogram", "H.", "seconds"));
    assert_eq!(known(&metadata, "s"), is("summary", "S.", ""));
    assert_eq!(known(&metadata, "g_bucket"), is("gauge", "G.", ""));
    assert_eq!(known(&metadata, "_sum"), is("summary", "", ""));
    assert_eq!(metadata.len(), 5);
    let second = batch(&[("h_count", MetricType::Histogram, "A family.", "")]);
    metadata.record_metadata(&tenant, MetadataNameKind::Families, &second, 2);
    assert_eq!(
        known(&metadata, "h_count"),
        is("histogram", "A family.", "")
    );
    let other = TenantId::new("other").unwrap();
    let third = batch(&[("a_total", MetricType::Gauge, "B.", "")]);
    metadata.record_metadata(&other, MetadataNameKind::Series, &third, 2);
    assert_eq!(known(&metadata, "a_total"), is("counter", "A.", ""));
}

#[test]
fn metadata_that_was_written_is_there_after_a_crash() {
    let disk = Arc::new(SimDisk::new(1));
    let dir = Path::new("/data/metadata");
    let tenant = TenantId::anonymous();
    let open = || {
        let metadata = PushedMetadata::default();
        metadata.open_file(disk.clone(), dir, 5).unwrap();
        metadata
    };
    let metadata = open();
    metadata.record_metadata(
        &tenant,
        MetadataNameKind::Series,
        &batch(&[("a", MetricType::Gauge, "A.", "bytes")]),
        10,
    );
    metadata.write_if_due(20).unwrap();
    metadata.record_metadata(
        &tenant,
        MetadataNameKind::Series,
        &batch(&[("b", MetricType::Info, "B.", "")]),
        30,
    );
    // Too soon after the first write.
    metadata.write_if_due(40).unwrap();
    drop(metadata);
    disk.crash();
    let metadata = open();
    assert_eq!(metadata.len(), 1);
    assert_eq!(known(&metadata, "a").unwrap().1, "A.");
    metadata.record_metadata(
        &tenant,
        MetadataNameKind::Series,
        &batch(&[("b", MetricType::Info, "B.", "")]),
        30,
    );
    metadata.write_last(50).unwrap();
    disk.crash();
    assert_eq!(open().len(), 2);
}

#[test]
fn file_of_any_bytes_is_read_or_refused() {
    let tenant = TenantId::anonymous();
    let said = batch(&[
        ("a", MetricType::Gauge, "A.", "bytes"),
        ("b", MetricType::Stateset, "", ""),
    ]);
    let whole = encode(said.iter().map(|said| (&tenant, said)));
    let golden = b"FIRNMTD1\x02\0\0\0\xe0\x84\xbc\x77\x09\0\0\0anonymous\x02\x01\0\0\0a\x02\0\0\0A.\x05\0\0\0bytes\x09\0\0\0anonymous\x07\x01\0\0\0b\0\0\0\0\0\0\0\0";
    assert_eq!(
        whole.escape_ascii().to_string(),
        golden.escape_ascii().to_string()
    );
    let read = |bytes: &[u8]| {
        let mut found = Vec::new();
        decode(bytes, &mut |_, said| found.push(said.name.to_owned())).map(|()| found)
    };
    assert_eq!(read(&whole).unwrap(), ["a", "b"]);
    for seed in 0..2_000 {
        let random = SimRng::new(seed);
        let mut bytes = whole.clone();
        let at = random.next_below(bytes.len() as u64) as usize;
        match random.next_below(2) {
            0 => bytes.truncate(at),
            _ => bytes[at] ^= 1 << random.next_below(8),
        }
        assert!(read(&bytes).is_err(), "seed {seed}");
    }
}

#[test]
fn full_table_lets_go_of_what_nothing_was_said_of_for_a_day() {
    let metadata = PushedMetadata::default();
    let tenant = TenantId::anonymous();
    let help = "h".repeat(1 << 20);
    let names: Vec<String> = (0..20).map(|i| format!("m{i}")).collect();
    let of = |names: &[String]| {
        let said: Vec<_> = names
            .iter()
            .map(|name| (name.as_str(), MetricType::Gauge, help.as_str(), ""))
            .collect();
        batch(&said)
    };
    assert_eq!(
        metadata.record_metadata(&tenant, MetadataNameKind::Families, &of(&names), 0),
        5
    );
    let day = KEPT.as_millis() as i64;
    // Pushed again just now: it is kept.
    metadata.record_metadata(&tenant, MetadataNameKind::Families, &of(&names[..1]), day);
    let late = names[15..].to_vec();
    assert_eq!(
        metadata.record_metadata(&tenant, MetadataNameKind::Families, &of(&late), day + 1),
        0
    );
    assert_eq!(metadata.len(), 6);
    assert!(known(&metadata, "m0").is_some());
    assert!(known(&metadata, "m1").is_none());
}
