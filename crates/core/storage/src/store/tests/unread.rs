//! Tests of batches whose labels are not decoded yet.

use super::*;
use firn_model::batch::{BatchSource, LabelDecodeOutcome};
use firn_model::error::Error;
use firn_model::series_key::{CanonicalKeys, KeyFormat};

/// A source that records the requests for labels. Its keys may have their labels in any order.
struct Noting {
    batch: Batch,
    asked: Vec<u32>,
    /// Series that it rejects.
    refuses: Vec<u32>,
    fails: bool,
}

/// Returns a source with one series for each name; labels are in reverse order if the flag is set.
fn unread(series: &[(&str, i64, bool)]) -> Noting {
    let mut batch = Batch::default();
    let mut message = Vec::new();
    for (name, time, is_reversed) in series {
        let start = message.len();
        let labels = labels(name);
        if *is_reversed {
            let pairs: Vec<_> = labels.iter().collect();
            for (name, value) in pairs.into_iter().rev() {
                CanonicalKeys.push_key(&mut message, Labels::from_pairs([(name, value)]).as_ref());
            }
        } else {
            CanonicalKeys.push_key(&mut message, labels.as_ref());
        }
        batch.push_float(*time, *time as f64);
        batch.end_unread_series(start..message.len());
    }
    batch.put_message(message, &CanonicalKeys);
    Noting {
        batch,
        asked: Vec::new(),
        refuses: Vec::new(),
        fails: false,
    }
}

/// Returns the labels of a key whose lengths are all short.
fn parse(key: &[u8]) -> Labels {
    let mut pairs = Vec::new();
    let mut rest = key;
    while let [name_bytes, after @ ..] = rest {
        let (name, after) = after.split_at(usize::from(*name_bytes));
        let (value, after) = after[1..].split_at(usize::from(after[0]));
        pairs.push((String::from_utf8(name.to_vec()).unwrap(), value.to_vec()));
        rest = after;
    }
    Labels::from_pairs(pairs)
}

impl BatchSource for Noting {
    fn batch(&self) -> &Batch {
        &self.batch
    }

    fn read_labels(&mut self, series: &[u32]) -> Result<(), Error> {
        if self.fails {
            return Err(Error::new(ErrorKind::Invalid, "malformed"));
        }
        for i in series {
            let is_refused = self.refuses.contains(i);
            self.asked.push(*i);
            self.batch.read_key(*i as usize, |key, _, arena| {
                arena.extend_from_slice(parse(key).as_bytes());
                Ok::<_, Error>(if is_refused {
                    LabelDecodeOutcome::Refused
                } else {
                    LabelDecodeOutcome::Stands
                })
            })?;
        }
        Ok(())
    }

    fn remove_series(&mut self, series: &[u32]) -> Option<Batch> {
        self.batch.remove_series(series);
        None
    }
}

fn send(store: &Store, mut source: Noting) -> (Result<AppendOutcome, Error>, Vec<u32>) {
    let ticket = store.append_from(&TenantId::anonymous(), &mut source, ALWAYS);
    (ticket.wait(), source.asked)
}

#[test]
fn labels_of_known_series_are_not_asked_for_and_any_order_is_the_same_series() {
    for shards in [1, 8] {
        let sim = sim::sim_env(1);
        let store = open(
            &sim,
            StoreOptions {
                shards,
                ..options()
            },
        );
        let all = ["a", "b", "c", "d", "e"];
        let at = |time, is_reversed| unread(&all.map(|name| (name, time, is_reversed)));
        let everything: Vec<u32> = (0..5).collect();
        for (time, is_reversed, asked) in [
            (1, true, &everything[..]),
            (2, false, &[]),
            (3, true, &everything),
            (4, false, &[]),
        ] {
            let (appended, got) = send(&store, at(time, is_reversed));
            assert_eq!(appended.unwrap().stored, 5, "{time}");
            assert_eq!(got, asked, "{time}");
        }
        append(&store, &batch(&[("b", &[(5, 5.0)])]), ALWAYS);
        let store = {
            drop(store);
            open(&sim, options())
        };
        let (appended, got) = send(&store, at(6, false));
        assert_eq!((appended.unwrap().stored, got), (5, Vec::new()));
        let seen = contents(&store, TimeRange::ALL);
        let counts: Vec<usize> = seen.iter().map(|(_, samples)| samples.len()).collect();
        assert_eq!(counts.iter().sum::<usize>(), 26);
        assert_eq!(counts.len(), 5);
    }
}

#[test]
fn sample_refused_of_a_known_series_is_told_with_its_labels() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    send(&store, unread(&[("a", 5, false)])).0.unwrap();
    let (appended, asked) = send(&store, unread(&[("a", 4, false)]));
    let rejected = &appended.unwrap().rejected[0];
    assert_eq!(rejected.rejection, SampleRejection::OutOfOrder);
    assert_eq!(rejected.first_labels, labels("a"));
    assert_eq!(asked, Vec::<u32>::new());
}

#[test]
fn series_with_refused_labels_is_not_born_and_its_neighbours_are() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    let mut source = unread(&[("a", 1, false), ("b", 1, false), ("c", 1, true)]);
    source.refuses = vec![1];
    let appended = send(&store, source).0.unwrap();
    assert_eq!((appended.stored, appended.rejected.len()), (2, 0));
    let names: Vec<String> = contents(&store, TimeRange::ALL)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["a", "c"]);
}

#[test]
fn batch_with_unreadable_labels_leaves_no_trace() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    send(&store, unread(&[("a", 1, false)])).0.unwrap();
    let mut source = unread(&[("a", 2, false), ("b", 2, false)]);
    source.fails = true;
    assert_eq!(send(&store, source).0.unwrap_err().message, "malformed");
    assert!(
        store
            .parts
            .head
            .shards
            .iter()
            .all(|s| lock(s).appending == 0)
    );
    let seen = contents(&store, TimeRange::ALL);
    assert_eq!(seen, [("a".to_owned(), vec![(1, 1.0)])]);
}

/// Keys that are encoded like the store's, in a format with another name.
#[derive(Debug)]
struct ForeignKeys;

impl KeyFormat for ForeignKeys {
    fn name(&self) -> &'static str {
        "foreign"
    }

    fn push_label(&self, key: &mut Vec<u8>, name: &[u8], value: &[u8]) -> usize {
        CanonicalKeys.push_label(key, name, value)
    }
}

#[test]
fn keys_of_another_format_are_not_looked_up_and_their_labels_are_read() {
    let sim = sim::sim_env(1);
    let store = open(&sim, options());
    let rounds: [(i64, &'static dyn KeyFormat, usize); 3] = [
        (1, &CanonicalKeys, 2),
        (2, &ForeignKeys, 2),
        (3, &CanonicalKeys, 0),
    ];
    for (time, format, asked) in rounds {
        let mut source = unread(&[("a", time, false), ("b", time, false)]);
        let message = source.batch.take_message();
        source.batch.put_message(message, format);
        let (appended, got) = send(&store, source);
        assert_eq!((appended.unwrap().stored, got.len()), (2, asked), "{time}");
    }
    assert_eq!(contents(&store, TimeRange::ALL).len(), 2);
}
