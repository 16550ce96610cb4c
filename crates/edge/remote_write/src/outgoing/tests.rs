//! Tests of the conversion of kept requests to the requests of receivers.

use super::*;
use firn_ingest::metadata::FamilyMetadata;
use firn_ingest::relabel::{RelabelAction, RelabelRuleSettings};
use firn_ingest::sending::encode_requests;
use firn_model::exemplar::TimedExemplar;
use firn_model::labels::{Labels, METRIC_NAME};
use firn_model::names::NameScheme;
use firn_model::sample::TimestampMs;
use firn_wire::WireLimits;
use firn_wire::remote_write::{RemoteWriteDecoder, RemoteWriteOptions, encode};

fn body(series: &[&[(&str, &str)]]) -> Vec<u8> {
    let mut batch = Batch::default();
    for pairs in series {
        let labels = Labels::from_pairs(pairs.iter().copied());
        batch.push_series(labels.as_ref(), &[(5, 1.5), (6, f64::NAN)]);
    }
    encode(&batch)
}

/// Encodes a request with one sample at `time` for each of `series`.
fn sample(time: TimestampMs, series: &[&str]) -> Vec<u8> {
    let mut batch = Batch::default();
    for name in series {
        let labels = Labels::from_pairs([(METRIC_NAME, *name)]);
        batch.push_series(labels.as_ref(), &[(time, 1.0)]);
    }
    encode(&batch)
}

fn outgoing(external: &[(&str, &str)], relabel: Vec<RelabelRuleSettings>) -> OutgoingSettings {
    let compiled = relabel.into_iter().map(|r| r.compile(NameScheme::Utf8));
    OutgoingSettings {
        external_labels: Labels::from_pairs(external.iter().copied()),
        relabel: compiled.collect::<Result<Vec<_>, _>>().unwrap().into(),
        sends_histograms: false,
        sends_exemplars: false,
        version: RemoteWriteVersion::V1,
        request_samples: 2000,
        shares: (1, 1),
    }
}

fn rounds(outgoing: &OutgoingSettings, bodies: &[Vec<u8>]) -> Vec<Result<OutgoingRound, String>> {
    let kept = |body: &Vec<u8>| QueuedWriteRequest {
        version: RemoteWriteVersion::V1,
        contents: None,
        body: body.clone().into(),
    };
    let kept: Vec<QueuedWriteRequest> = bodies.iter().map(kept).collect();
    // No request is forwarded unchanged.
    let known = RemoteWriteMetadata::default();
    outgoing.build_rounds(&kept, &known, true, &WireLimits::default())
}

/// Formats the contents of a request as `name time time`, one series per line.
fn shown(sent: &OutgoingRequest) -> Vec<String> {
    let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
    let decoded = decoder
        .decode(RemoteWriteOptions::default(), &sent.body)
        .unwrap();
    let series = decoded.batch.iter().map(|series| {
        let name = String::from_utf8_lossy(series.labels.get(METRIC_NAME)).into_owned();
        let times = series.times.iter();
        times.fold(name, |line, time| format!("{line} {time}"))
    });
    series.collect()
}

fn check(outgoing: &OutgoingSettings, series: &[&[(&str, &str)]], expected: &[&[(&str, &str)]]) {
    let made = rounds(outgoing, &[body(series)]).remove(0).unwrap();
    let sent: Vec<&OutgoingRequest> = made.shares.iter().flatten().collect();
    match (expected, &sent[..]) {
        ([], []) => {}
        ([_, ..], [one]) => {
            assert_eq!(one.body, body(expected), "{series:?}");
            let contents = one.contents;
            let samples = 2 * expected.len() as u64;
            assert_eq!((contents.samples, contents.newest), (samples, 6));
        }
        _ => panic!("{series:?}: {sent:?}"),
    }
    let dropped = 2 * (series.len() - expected.len()) as u64;
    assert_eq!(made.dropped.samples, dropped, "{series:?}");
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
    let drop = RelabelRuleSettings {
        source_labels: Some(vec!["region".into(), "__name__".into()]),
        regex: Some("eu;a.*".into()),
        action: RelabelAction::Drop,
        ..RelabelRuleSettings::default()
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
    assert_eq!((first.kept, first.is_full), (2, true));
    assert_eq!(shown(&first.shares[0][0]), ["a 1", "b 1", "a 2"]);
    assert!(made[1].is_err());
    let last = made[2].as_ref().unwrap();
    assert_eq!(
        (last.kept, last.is_full, shown(&last.shares[0][0])),
        (1, false, vec!["b 3".to_owned()])
    );
}

#[test]
fn shares_hold_each_series_once_and_in_order_in_requests_that_are_full() {
    let mut outgoing = outgoing(&[], Vec::new());
    (outgoing.request_samples, outgoing.shares) = (10, (1, 4));
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
        assert!(full.iter().all(|sent| sent.contents.samples == 10) && last.contents.samples <= 10);
        let mut lines: Vec<String> = share.iter().flat_map(shown).collect();
        seen += lines.len();
        // The sort is stable, so the times of each series remain in their order.
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
    let request = encode_requests(&mut &batch, 1, 7).unwrap().remove(0);
    assert_eq!(
        (request.version, request.contents.newest),
        (RemoteWriteVersion::V2, 7)
    );
    let mut known = RemoteWriteMetadata::default();
    known.add_family(
        "a",
        &FamilyMetadata {
            kind: "counter",
            help: "Help.".into(),
            unit: String::new(),
        },
    );
    let mut outgoing = outgoing(&[], Vec::new());
    let kept = [QueuedWriteRequest {
        version: RemoteWriteVersion::V2,
        contents: None,
        body: request.body.into(),
    }];
    for (version, exemplars, start) in [
        (RemoteWriteVersion::V2, 1, Some(3)),
        (RemoteWriteVersion::V1, 1, None),
    ] {
        (outgoing.version, outgoing.sends_exemplars) = (version, true);
        let mut made = outgoing.build_rounds(&kept, &known, true, &WireLimits::default());
        let sent = made.remove(0).unwrap().shares.remove(0).remove(0);
        assert_eq!(
            (sent.contents.samples, sent.contents.exemplars),
            (1, exemplars)
        );
        let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
        let reader = RemoteWriteOptions {
            version,
            keeps_exemplars: true,
            labels_types: false,
        };
        let decoded = decoder.decode(reader, &sent.body).unwrap();
        assert_eq!(decoded.batch.series(0).start_times.first().copied(), start);
        assert_eq!(decoded.batch.exemplars().len(), 1);
        let said: Vec<&str> = decoded.metadata.iter().map(|said| said.help).collect();
        let expected: &[&str] = match version {
            RemoteWriteVersion::V1 => &[],
            RemoteWriteVersion::V2 => &["Help."],
        };
        assert_eq!(said, expected);
    }
}

/// Checks the conversion of a single kept request for a receiver that keeps up: unchanged or
/// rebuilt.
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
        let mut said = RemoteWriteMetadata::default();
        let family = FamilyMetadata {
            kind: "counter",
            help: "Help.".into(),
            unit: String::new(),
        };
        said.add_family("s0", &family);
        let text = firn_wire::remote_write::encode_metadata(said.iter());
        firn_wire::snappy::compress(&[unpacked(&plain), unpacked(&text)].concat())
    };
    let at_most = |samples| OutgoingSettings {
        request_samples: samples,
        ..outgoing(&[], Vec::new())
    };
    let with_exemplars = OutgoingSettings {
        sends_exemplars: true,
        ..at_most(6)
    };
    let other_version = OutgoingSettings {
        version: RemoteWriteVersion::V2,
        ..at_most(6)
    };
    let external = OutgoingSettings {
        external_labels: Labels::from_pairs([("region", "eu")]),
        ..at_most(6)
    };
    for (what, outgoing, body, is_behind, passes) in [
        ("full", at_most(6), &plain, false, true),
        ("half full", at_most(12), &plain, false, true),
        ("too large", at_most(5), &plain, false, false),
        ("behind", at_most(6), &plain, true, true),
        ("another version", other_version, &plain, false, false),
        ("external labels", external, &plain, false, false),
        ("exemplars", at_most(6), &exemplars, false, false),
        ("wanted exemplars", with_exemplars, &exemplars, false, true),
        ("metadata", at_most(6), &metadata, false, false),
    ] {
        let kept = [QueuedWriteRequest {
            version: RemoteWriteVersion::V1,
            contents: None,
            body: body.clone().into(),
        }];
        let known = RemoteWriteMetadata::default();
        let mut made = outgoing.build_rounds(&kept, &known, is_behind, &WireLimits::default());
        let round = made.remove(0).unwrap();
        let sent = round.shares[0][0].clone();
        // A rebuilt request has another order of fields or other contents.
        let is_it =
            round.is_full && round.shares.len() == 1 && sent.body.as_ptr() == kept[0].body.as_ptr();
        assert_eq!(is_it, passes, "{what}");
        if passes {
            assert_eq!(
                (round.kept, round.dropped.samples, sent.contents.samples),
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

/// Converts requests with one sample per series, whose timestamps are their indexes (`a..d` has the
/// series `a`, `b` and `c`), for a receiver with at most 6 samples per request. In the expected
/// text, `|` separates shares, `,` requests and `;` rounds; `*` follows a round that is not full.
fn check_passing(kept: &[&[&str]], is_behind: bool, expected: &str) {
    let at_most_6 = OutgoingSettings {
        request_samples: 6,
        shares: (1, 4),
        ..outgoing(&[], Vec::new())
    };
    let times = 0..;
    let bodies = kept
        .iter()
        .zip(times)
        .map(|(series, time)| QueuedWriteRequest {
            version: RemoteWriteVersion::V1,
            contents: Some(WriteRequestContents {
                samples: series.len() as u64,
                newest: time,
                oldest: time,
                ..WriteRequestContents::default()
            }),
            body: sample(time, series).into(),
        });
    let bodies: Vec<QueuedWriteRequest> = bodies.collect();
    let known = RemoteWriteMetadata::default();
    let made = at_most_6.build_rounds(&bodies, &known, is_behind, &WireLimits::default());
    let made: Vec<OutgoingRound> = made.into_iter().map(Result::unwrap).collect();
    assert_eq!(
        made.iter().map(|round| round.kept).sum::<usize>(),
        kept.len()
    );
    let share = |share: &Share| {
        share
            .iter()
            .map(|s| shown(s).join(" "))
            .collect::<Vec<_>>()
            .join(",")
    };
    let round = |round: &OutgoingRound| {
        let shares: Vec<String> = round.shares.iter().map(share).collect();
        format!(
            "{}{}",
            shares.join("|"),
            ["*", ""][usize::from(round.is_full)]
        )
    };
    let shown: Vec<String> = made.iter().map(round).collect();
    assert_eq!(shown.join(";"), expected, "{kept:?}");
    for sent in made.iter().flat_map(|round| round.shares.iter().flatten()) {
        let mut decoder = RemoteWriteDecoder::new(WireLimits::default());
        let decoded = decoder
            .decode(RemoteWriteOptions::default(), &sent.body)
            .unwrap();
        let all = 0..decoded.batch.series_count();
        assert_eq!(
            sent.contents,
            WriteRequestContents::from_batch(decoded.batch, all)
        );
    }
}

#[test]
fn small_requests_travel_in_one_as_they_were_kept() {
    check_passing(&[], false, "");
    check_passing(&[&["a"]], false, "a 0*");
    check_passing(&[&["a"], &["a", "b"]], false, "a 0 a 1 b 1");
    check_passing(
        &[&["a"], &["a", "b", "c"], &["a", "b", "c"], &["d"]],
        false,
        "a 0 a 1 b 1 c 1;a 2 b 2 c 2 d 3",
    );
    let full = ["a", "b", "c", "d", "e", "f"];
    check_passing(
        &[&["g"], &full, &["g"], &["h"]],
        false,
        "g 0;a 1 b 1 c 1 d 1 e 1 f 1;g 2 h 3*",
    );
}

#[test]
fn requests_that_are_too_long_together_travel_alone() {
    let kept = [sample(1, &["a"]), sample(2, &["b"])];
    let length = unpacked(&kept[0]).len() + unpacked(&kept[1]).len();
    let bodies: Vec<QueuedWriteRequest> = kept
        .iter()
        .map(|body| QueuedWriteRequest {
            version: RemoteWriteVersion::V1,
            contents: None,
            body: body.clone().into(),
        })
        .collect();
    for (message_bytes_max, requests) in [(length, 1), (length - 1, 2)] {
        let limits = WireLimits {
            message_bytes_max,
            ..WireLimits::default()
        };
        let made = outgoing(&[], Vec::new()).build_rounds(
            &bodies,
            &RemoteWriteMetadata::default(),
            false,
            &limits,
        );
        let made: Vec<OutgoingRound> = made.into_iter().map(Result::unwrap).collect();
        assert_eq!((made.len(), made[0].kept), (requests, 3 - requests));
    }
}

#[test]
fn requests_without_a_series_in_common_go_side_by_side_for_a_receiver_that_is_behind() {
    let (one, other) = (["a", "b", "c", "d"], ["e", "f", "g", "h"]);
    check_passing(&[&one], true, "a 0 b 0 c 0 d 0");
    check_passing(
        &[&one, &other, &one],
        true,
        "a 0 b 0 c 0 d 0,a 2 b 2 c 2 d 2|e 1 f 1 g 1 h 1",
    );
    // The third request has series in common with both others, so all are ordered and shares are
    // built by series.
    let mut made = Vec::new();
    let both = ["a", "f", "x", "y"];
    for kept in [&one[..], &other, &both] {
        made.push(sample(made.len() as i64, kept));
    }
    let mut at_most_6 = outgoing(&[], Vec::new());
    (at_most_6.request_samples, at_most_6.shares) = (6, (1, 4));
    let made = rounds(&at_most_6, &made);
    let round = made[0].as_ref().unwrap();
    assert_eq!((made.len(), round.kept, round.dropped.samples), (1, 3, 0));
    assert!(round.shares.len() > 1, "{round:?}");
    let lines: Vec<String> = round.shares.iter().flatten().flat_map(shown).collect();
    assert_eq!(
        lines
            .iter()
            .map(|line| line.split(' ').count() - 1)
            .sum::<usize>(),
        12
    );
}

#[test]
fn receiver_gets_the_least_shares_while_it_keeps_up_and_the_most_while_it_is_behind() {
    let kept: Vec<QueuedWriteRequest> = ["a", "b", "c", "d", "e"]
        .map(|name| QueuedWriteRequest {
            version: RemoteWriteVersion::V1,
            contents: None,
            body: sample(1, &[name]).into(),
        })
        .into();
    let mut receiver = outgoing(&[], Vec::new());
    (receiver.request_samples, receiver.shares) = (1, (2, 4));
    for (is_behind, shares) in [(false, 2), (true, 4)] {
        let known = RemoteWriteMetadata::default();
        let made = receiver.build_rounds(&kept, &known, is_behind, &WireLimits::default());
        let made: Vec<OutgoingRound> = made.into_iter().map(Result::unwrap).collect();
        let counts: Vec<usize> = made.iter().map(|round| round.shares.len()).collect();
        assert_eq!(counts, [shares], "{is_behind}");
    }
}

/// Checks that the separated parts of `sent`, whose kept requests have one timestamp each, contain
/// the same samples as the whole, with one timestamp per part.
fn check_seams(sent: &OutgoingRequest) {
    let limits = WireLimits::default();
    let parts = sent
        .seams
        .split_body(RemoteWriteVersion::V1, &sent.body, &limits);
    let whole = OutgoingRequest::from_single_request(sent.body.clone(), sent.contents);
    let mut parts: Vec<OutgoingRequest> = (parts.unwrap().into_iter())
        .map(|(body, contents)| OutgoingRequest::from_single_request(body.into(), contents))
        .collect();
    if parts.is_empty() {
        parts.push(whole.clone());
    }
    let lines: Vec<String> = parts.iter().flat_map(shown).collect();
    assert_eq!(lines, shown(&whole));
    let contents = parts.iter().map(|part| part.contents);
    assert_eq!(
        contents.reduce(WriteRequestContents::merged_with),
        Some(sent.contents)
    );
    let mut times = Vec::new();
    for part in &parts {
        let of_part: Vec<String> = (shown(part).iter())
            .flat_map(|line| {
                line.split(' ')
                    .skip(1)
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            })
            .collect();
        assert!(
            of_part.iter().all(|time| *time == of_part[0]),
            "{of_part:?}"
        );
        times.push(of_part[0].clone());
    }
    let count = times.len();
    times.dedup();
    assert_eq!(times.len(), count, "a kept request is in one part");
}

/// Checks random requests for receivers that keep up or are behind: each series is in one share per
/// round, in order, and no sample is lost.
#[test]
fn requests_at_random_keep_each_series_in_order() {
    for seed in 1..=300 {
        let random = firn_model::env::sim::SimRng::new(seed);
        let names: Vec<String> = (0..12).map(|i| format!("s{i}")).collect();
        let mut kept = Vec::new();
        let mut expected = std::collections::BTreeMap::<String, Vec<String>>::new();
        for time in 0..random.next_below(30) as i64 {
            let first = random.next_below(12) as usize;
            let series = &names[first..names.len().min(first + 1 + random.next_below(8) as usize)];
            let series: Vec<&str> = series.iter().map(String::as_str).collect();
            for name in &series {
                let times = expected.entry((*name).to_owned()).or_default();
                times.push(time.to_string());
            }
            kept.push(sample(time, &series));
        }
        let mut receiver = outgoing(&[], Vec::new());
        receiver.request_samples = 1 + random.next_below(10) as usize;
        receiver.shares.1 = 1 + random.next_below(5) as usize;
        if random.next_below(2) == 0 {
            receiver.external_labels = Labels::from_pairs([("region", "eu")]);
        }
        let made = rounds(&receiver, &kept);
        let mut got = std::collections::BTreeMap::<String, Vec<String>>::new();
        let mut bodies = 0;
        for round in made {
            let round = round.unwrap();
            bodies += round.kept;
            let mut share_of = std::collections::BTreeMap::<String, usize>::new();
            for (number, share) in round.shares.iter().enumerate() {
                share.iter().for_each(check_seams);
                for line in share.iter().flat_map(shown) {
                    let mut words = line.split(' ').map(str::to_owned);
                    let name = words.next().unwrap();
                    let share = *share_of.entry(name.clone()).or_insert(number);
                    assert_eq!(share, number, "seed {seed}: {name}");
                    got.entry(name).or_default().extend(words);
                }
            }
        }
        assert_eq!(bodies, kept.len(), "seed {seed}");
        assert_eq!(got, expected, "seed {seed}");
    }
}

#[test]
fn what_this_process_makes_is_as_large_as_receivers_want_it() {
    let mut batch = Batch::default();
    for (name, samples) in [("a", 2), ("b", 2), ("c", 3), ("d", 9), ("e", 1)] {
        let labels = Labels::from_pairs([(METRIC_NAME, name)]);
        let samples: Vec<_> = (0..samples).map(|time| (time, 1.0)).collect();
        batch.push_series(labels.as_ref(), &samples);
    }
    let made = encode_requests(&mut &batch, 5, 8).unwrap();
    let shown: Vec<(u64, TimestampMs, Vec<String>)> = made
        .iter()
        .map(|request| {
            let sent =
                OutgoingRequest::from_single_request(request.body.clone().into(), request.contents);
            (sent.contents.samples, sent.contents.newest, shown(&sent))
        })
        .collect();
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    assert_eq!(
        shown,
        [
            (4, 1, lines(&["a 0 1", "b 0 1"])),
            (3, 2, lines(&["c 0 1 2"])),
            (9, 8, lines(&["d 0 1 2 3 4 5 6 7 8"])),
            (1, 0, lines(&["e 0"])),
        ]
    );
    assert_eq!(
        encode_requests(&mut &Batch::default(), 5, 8),
        Ok(Vec::new())
    );
    // Samples too far in the future are removed, with series that have no others.
    let made = encode_requests(&mut &batch, 100, 1).unwrap();
    assert_eq!((made.len(), made[0].contents.samples), (1, 9));
    assert_eq!((made[0].contents.newest, made[0].contents.oldest), (1, 0));
    assert_eq!(encode_requests(&mut &batch, 100, -1), Ok(Vec::new()));
}
