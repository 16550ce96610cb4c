//! What receivers get of kept requests.

use super::*;
use crate::relabel::{Action, RuleSettings};
use crate::scrape::FamilyMetadata;
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::names::NameScheme;
use firn_wire::WireLimits;
use firn_wire::remote_write::{Decoder, Reader};

fn body(series: &[&[(&str, &str)]]) -> Vec<u8> {
    let mut batch = Batch::default();
    for pairs in series {
        let labels = Labels::from_pairs(pairs.iter().copied());
        batch.push_series(labels.as_ref(), &[(5, 1.5), (6, f64::NAN)]);
    }
    encode(&batch)
}

/// A request with one sample at `time` of each of `series`.
fn sample(time: TimestampMs, series: &[&str]) -> Vec<u8> {
    let mut batch = Batch::default();
    for name in series {
        let labels = Labels::from_pairs([(METRIC_NAME, *name)]);
        batch.push_series(labels.as_ref(), &[(time, 1.0)]);
    }
    encode(&batch)
}

fn outgoing(external: &[(&str, &str)], relabel: Vec<RuleSettings>) -> Outgoing {
    let compiled = relabel.into_iter().map(|r| r.compile(NameScheme::Utf8));
    Outgoing {
        external_labels: Labels::from_pairs(external.iter().copied()),
        relabel: compiled.collect::<Result<Vec<_>, _>>().unwrap().into(),
        sends_histograms: false,
        sends_exemplars: false,
        version: Version::V1,
        request_samples: 2000,
        shares_max: 1,
    }
}

fn rounds(outgoing: &Outgoing, bodies: &[Vec<u8>]) -> Vec<Result<Round, String>> {
    let kept = |body: &Vec<u8>| Kept {
        version: Version::V1,
        body: body.clone().into(),
    };
    let kept: Vec<Kept> = bodies.iter().map(kept).collect();
    // Nothing goes as it was kept.
    let known = (&Known::default(), true);
    outgoing.rounds(&kept, known, &WireLimits::default())
}

/// What a request holds: `name time time`, a series a line.
fn shown(sent: &Sent) -> Vec<String> {
    let mut decoder = Decoder::new(WireLimits::default());
    let decoded = decoder.decode(Reader::default(), &sent.body).unwrap();
    let series = decoded.batch.iter().map(|series| {
        let name = String::from_utf8_lossy(series.labels.get(METRIC_NAME)).into_owned();
        let times = series.times.iter();
        times.fold(name, |line, time| format!("{line} {time}"))
    });
    series.collect()
}

fn check(outgoing: &Outgoing, series: &[&[(&str, &str)]], expected: &[&[(&str, &str)]]) {
    let made = rounds(outgoing, &[body(series)]).remove(0).unwrap();
    let sent: Vec<&Sent> = made.shares.iter().flatten().collect();
    match (expected, &sent[..]) {
        ([], []) => {}
        ([_, ..], [one]) => {
            assert_eq!(one.body, body(expected), "{series:?}");
            assert_eq!((one.samples, one.newest), (2 * expected.len() as u64, 6));
        }
        _ => panic!("{series:?}: {sent:?}"),
    }
    let dropped = 2 * (series.len() - expected.len()) as u64;
    assert_eq!(made.dropped, dropped, "{series:?}");
}

#[test]
fn external_labels_are_for_series_without_them() {
    let outgoing = outgoing(&[("region", "eu"), ("zone", "a")], Vec::new());
    check(
        &outgoing,
        &[&[("__name__", "up"), ("zone", "b")], &[("__name__", "x")]],
        &[
            &[("__name__", "up"), ("region", "eu"), ("zone", "b")],
            &[("__name__", "x"), ("region", "eu"), ("zone", "a")],
        ],
    );
}

#[test]
fn relabelling_sees_external_labels_and_drops_series() {
    let drop = RuleSettings {
        source_labels: Some(vec!["region".into(), "__name__".into()]),
        regex: Some("eu;a.*".into()),
        action: Action::Drop,
        ..RuleSettings::default()
    };
    let outgoing = outgoing(&[("region", "eu")], vec![drop]);
    check(
        &outgoing,
        &[&[("__name__", "a1")], &[("__name__", "b1")]],
        &[&[("__name__", "b1"), ("region", "eu")]],
    );
    check(&outgoing, &[&[("__name__", "a1")]], &[]);
}

#[test]
fn small_requests_become_one_and_an_unreadable_one_stands_alone() {
    let outgoing = outgoing(&[], Vec::new());
    let bodies = [
        sample(1, &["a", "b"]),
        sample(2, &["a"]),
        b"\xff\xff".to_vec(),
        sample(3, &["b"]),
    ];
    let made = rounds(&outgoing, &bodies);
    assert_eq!(made.len(), 3);
    let first = made[0].as_ref().unwrap();
    assert_eq!((first.kept, first.is_full), (2, false));
    assert_eq!(shown(&first.shares[0][0]), ["a 1", "b 1", "a 2"]);
    assert!(made[1].is_err());
    let last = made[2].as_ref().unwrap();
    assert_eq!(
        (last.kept, shown(&last.shares[0][0])),
        (1, vec!["b 3".to_owned()])
    );
}

#[test]
fn shares_hold_each_series_once_and_in_order_in_requests_that_are_full() {
    let mut outgoing = outgoing(&[], Vec::new());
    (outgoing.request_samples, outgoing.shares_max) = (10, 4);
    let names: Vec<String> = (0..30).map(|n| format!("m{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let bodies: Vec<Vec<u8>> = (0..6).map(|time| sample(time, &names)).collect();
    let made = rounds(&outgoing, &bodies).remove(0).unwrap();
    assert_eq!((made.kept, made.is_full), (6, true));
    assert!(
        (2..=4).contains(&made.shares.len()),
        "{}",
        made.shares.len()
    );
    let mut seen = 0;
    for share in &made.shares {
        let (last, full) = share.split_last().unwrap();
        assert!(full.iter().all(|sent| sent.samples == 10) && last.samples <= 10);
        let mut lines: Vec<String> = share.iter().flat_map(shown).collect();
        seen += lines.len();
        // Stable: what is left is the order of times within each series.
        let name = |line: &String| line.split(' ').next().unwrap_or_default().to_owned();
        lines.sort_by_key(name);
        for series in lines.chunks(6) {
            let times: Vec<&str> = series.iter().filter_map(|l| l.split(' ').nth(1)).collect();
            assert_eq!(times, ["0", "1", "2", "3", "4", "5"], "{series:?}");
            assert!(series.iter().all(|line| name(line) == name(&series[0])));
        }
    }
    assert_eq!(seen, 180);
}

#[test]
fn version_2_carries_start_times_exemplars_and_what_is_known() {
    let mut batch = Batch::default();
    let labels = Labels::from_pairs([(METRIC_NAME, "a_total")]);
    batch
        .label_bytes()
        .extend_from_slice(labels.as_ref().as_bytes());
    batch.push_float_with_start(7, 2.0, 3);
    let trace = Labels::from_pairs([("trace_id", "x")]);
    batch.push_exemplar(TimedExemplar {
        labels: trace.as_ref(),
        value: 0.5,
        time: 6,
        has_own_time: true,
    });
    batch.end_series();
    let request = request_of(&mut &batch).unwrap().unwrap();
    assert_eq!((request.version, request.newest), (Version::V2, 7));
    let mut known = Known::default();
    known.add(
        "a",
        &FamilyMetadata {
            kind: "counter",
            help: "Help.".into(),
            unit: String::new(),
        },
    );
    let mut outgoing = outgoing(&[], Vec::new());
    let kept = [Kept {
        version: Version::V2,
        body: request.body.into(),
    }];
    for (version, exemplars, start) in [(Version::V2, 1, Some(3)), (Version::V1, 1, None)] {
        (outgoing.version, outgoing.sends_exemplars) = (version, true);
        let mut made = outgoing.rounds(&kept, (&known, true), &WireLimits::default());
        let sent = made.remove(0).unwrap().shares.remove(0).remove(0);
        assert_eq!((sent.samples, sent.exemplars), (1, exemplars));
        let mut decoder = Decoder::new(WireLimits::default());
        let reader = Reader {
            version,
            keeps_exemplars: true,
            labels_types: false,
        };
        let decoded = decoder.decode(reader, &sent.body).unwrap();
        assert_eq!(decoded.batch.series(0).start_times.first().copied(), start);
        assert_eq!(decoded.batch.exemplars().len(), 1);
        let said: Vec<&str> = decoded.metadata.iter().map(|said| said.help).collect();
        let expected: &[&str] = match version {
            Version::V1 => &[],
            Version::V2 => &["Help."],
        };
        assert_eq!(said, expected);
    }
}

/// What one kept request becomes for a receiver that keeps up: itself, or something else.
#[test]
fn request_that_needs_no_change_goes_as_it_was_kept() {
    let series: Vec<String> = (0..6).map(|i| format!("s{i}")).collect();
    let series: Vec<&str> = series.iter().map(String::as_str).collect();
    let plain = sample(5, &series);
    let mut batch = Batch::default();
    let labels = Labels::from_pairs([(METRIC_NAME, "a")]);
    batch.label_bytes().extend_from_slice(labels.as_bytes());
    (0..6).for_each(|i| batch.push_float(i, 1.0));
    let trace = Labels::from_pairs([("trace_id", "x")]);
    batch.push_exemplar(TimedExemplar {
        labels: trace.as_ref(),
        value: 0.5,
        time: 6,
        has_own_time: true,
    });
    batch.end_series();
    let exemplars = encode(&batch);
    let metadata = {
        let mut said = Known::default();
        let family = FamilyMetadata {
            kind: "counter",
            help: "Help.".into(),
            unit: String::new(),
        };
        said.add("s0", &family);
        let text = firn_wire::remote_write::encode_metadata(said.iter());
        firn_wire::snappy::compress(&[unpacked(&plain), unpacked(&text)].concat())
    };
    let at_most = |samples| Outgoing {
        request_samples: samples,
        ..outgoing(&[], Vec::new())
    };
    let with_exemplars = Outgoing {
        sends_exemplars: true,
        ..at_most(6)
    };
    let other_version = Outgoing {
        version: Version::V2,
        ..at_most(6)
    };
    let external = Outgoing {
        external_labels: Labels::from_pairs([("region", "eu")]),
        ..at_most(6)
    };
    for (what, outgoing, body, is_behind, passes) in [
        ("full", at_most(6), &plain, false, true),
        ("half full", at_most(12), &plain, false, true),
        ("less than that", at_most(13), &plain, false, false),
        ("too large", at_most(5), &plain, false, false),
        ("behind", at_most(6), &plain, true, false),
        ("another version", other_version, &plain, false, false),
        ("external labels", external, &plain, false, false),
        ("exemplars", at_most(6), &exemplars, false, false),
        ("wanted exemplars", with_exemplars, &exemplars, false, true),
        ("metadata", at_most(6), &metadata, false, false),
    ] {
        let kept = [Kept {
            version: Version::V1,
            body: body.clone().into(),
        }];
        let known = (&Known::default(), is_behind);
        let mut made = outgoing.rounds(&kept, known, &WireLimits::default());
        let round = made.remove(0).unwrap();
        let sent = round.shares[0][0].clone();
        // What is made of it is written in another order of fields, or has other contents.
        let is_it =
            round.is_full && round.shares.len() == 1 && sent.body.as_ptr() == kept[0].body.as_ptr();
        assert_eq!(is_it, passes, "{what}");
        if passes {
            assert_eq!(
                (round.kept, round.dropped, sent.samples),
                (1, 0, 6),
                "{what}"
            );
        }
    }
}

fn unpacked(body: &[u8]) -> Vec<u8> {
    let mut message = Vec::new();
    firn_wire::snappy::decompress(body, 1 << 20, &mut message).unwrap();
    message
}
