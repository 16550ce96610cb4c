//! Encoder for profiles in pprof's format, uncompressed.
//!
//! The messages follow `profile.proto` in google/pprof. Strings are indices into one string table,
//! whose first entry is empty. A location has one function and shares its id.

use prost::Message;
use std::collections::HashMap;
use std::time::{Duration, SystemTime};

/// Builds a profile from samples. Each string and each function is written once, and samples refer
/// to them by id.
#[derive(Debug)]
pub struct ProfileBuilder {
    profile: PprofProfile,
    texts: HashMap<String, i64>,
    functions: HashMap<String, u64>,
}

/// Time range and sampling period of the samples of a profile, as `pprof` shows them.
#[derive(Debug, Clone, Copy)]
pub struct ProfileTiming {
    pub start: SystemTime,
    pub duration: Duration,
    /// Distance between two samples, in the unit of the value type `period_type`.
    pub period: i64,
    /// Index of the value type in whose unit `period` is given.
    pub period_type: usize,
}

impl ProfileBuilder {
    /// Creates a profile without samples. `types` contains the kind and the unit of each value of a
    /// sample.
    pub fn new(types: &[(&str, &str)]) -> Self {
        let mut builder = Self {
            profile: PprofProfile::default(),
            texts: HashMap::new(),
            functions: HashMap::new(),
        };
        builder.text("");
        for (kind, unit) in types {
            let kind = builder.text(kind);
            let unit = builder.text(unit);
            builder
                .profile
                .sample_type
                .push(PprofValueType { kind, unit });
        }
        builder
    }

    /// Sets the time range and the sampling period of the profile.
    pub fn set_timing(&mut self, timing: ProfileTiming) {
        let since_epoch = timing.start.duration_since(SystemTime::UNIX_EPOCH);
        self.profile.time_nanos = since_epoch.map_or(0, |since| since.as_nanos() as i64);
        self.profile.duration_nanos = timing.duration.as_nanos() as i64;
        self.profile.period = timing.period;
        let period_type = self.profile.sample_type.get(timing.period_type);
        self.profile.period_type = period_type.copied();
    }

    /// Returns the id of the location of a function. Functions with equal names share one location.
    pub fn location(&mut self, name: &str, system_name: &str, file: &str, line: i64) -> u64 {
        if let Some(id) = self.functions.get(name) {
            return *id;
        }
        let id = self.functions.len() as u64 + 1;
        self.functions.insert(name.to_owned(), id);
        let function = PprofFunction {
            id,
            name: self.text(name),
            system_name: self.text(system_name),
            filename: self.text(file),
        };
        self.profile.function.push(function);
        let function_id = id;
        let line = vec![PprofLine { function_id, line }];
        self.profile.location.push(PprofLocation { id, line });
        id
    }

    /// Adds a sample: its stack with the innermost function first, one value per type, and an
    /// optional label.
    pub fn add_sample(&mut self, stack: Vec<u64>, values: Vec<i64>, label: Option<(&str, &str)>) {
        debug_assert_eq!(values.len(), self.profile.sample_type.len());
        let label = label.map(|(key, value)| PprofLabel {
            key: self.text(key),
            value: self.text(value),
        });
        self.profile.sample.push(PprofSample {
            location_id: stack,
            value: values,
            label: label.into_iter().collect(),
        });
    }

    /// Encodes the profile as an uncompressed protobuf message and returns its bytes.
    pub fn encode(self) -> Vec<u8> {
        self.profile.encode_to_vec()
    }

    fn text(&mut self, text: &str) -> i64 {
        if let Some(index) = self.texts.get(text) {
            return *index;
        }
        let index = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), index);
        index
    }
}

#[derive(Clone, PartialEq, Message)]
struct PprofProfile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<PprofValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<PprofSample>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<PprofLocation>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<PprofFunction>,
    #[prost(string, repeated, tag = "6")]
    string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    time_nanos: i64,
    #[prost(int64, tag = "10")]
    duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    period_type: Option<PprofValueType>,
    #[prost(int64, tag = "12")]
    period: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct PprofValueType {
    #[prost(int64, tag = "1")]
    kind: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PprofSample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    label: Vec<PprofLabel>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct PprofLabel {
    #[prost(int64, tag = "1")]
    key: i64,
    #[prost(int64, tag = "2")]
    value: i64,
}

#[derive(Clone, PartialEq, Message)]
struct PprofLocation {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<PprofLine>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct PprofLine {
    #[prost(uint64, tag = "1")]
    function_id: u64,
    #[prost(int64, tag = "2")]
    line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct PprofFunction {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
    #[prost(int64, tag = "3")]
    system_name: i64,
    #[prost(int64, tag = "4")]
    filename: i64,
}
