//! Requests for reads: the frames that a client sends on a stream of reads.
//!
//! ```text
//! kind u8 | timeout ms | budget bytes | fields of the kind
//! ```
//!
//! The first request of a selection is [`PeerReadRequest::Open`]; columns, labels and samples refer
//! to the open selection of the stream. Matchers travel as text and are compiled by the receiver.

use crate::bytes::{
    MalformedFrame, PeerFrameReader, push_count, push_option, push_prefixed, push_varint,
    push_zigzag,
};
use crate::service::ReadConsistency;
use firn_model::matcher::{MatchOp, Matcher};
use firn_model::sample::TimeRange;
use firn_model::tenant::TenantId;
use std::ops::Range;

/// A request with the limits of its execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimedReadRequest {
    /// The time for the answer in milliseconds, without the time on the network.
    pub timeout_ms: u64,
    /// The memory that the client may still use, in bytes.
    pub budget_bytes: u64,
    /// The request itself.
    pub request: PeerReadRequest,
}

/// A request on a stream of reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerReadRequest {
    /// Opens a selection.
    Open {
        /// The series to select.
        series: SeriesRequest,
        /// True if the samples will not be read.
        is_labels_only: bool,
    },
    /// Requests the values of a label of all series of the selection.
    Column(String),
    /// Requests the labels of series of the selection, at most [`super::LABELS_CHUNK`].
    Labels(Range<usize>),
    /// Requests the samples of series of the selection.
    Read(Range<usize>),
    /// Requests the label names of matching series.
    LabelNames(SeriesRequest),
    /// Requests the values of a label of matching series.
    LabelValues {
        /// The name of the label.
        name: String,
        /// The series of which the values are requested.
        series: SeriesRequest,
    },
    /// Requests exemplars of series that match one of the sets of matchers.
    Exemplars {
        /// The data to read.
        scope: TenantScope,
        /// Sets of matchers, of which one must match.
        sets: Vec<Vec<MatcherText>>,
    },
    /// Requests metadata of one or all metric families.
    Metadata {
        /// The tenant whose data is read.
        tenant: TenantId,
        /// The metric family, or `None` for all.
        metric: Option<String>,
    },
    /// Requests texts about lost data.
    Losses {
        /// The data that may be lost.
        scope: TenantScope,
        /// True for data that label names and values need.
        is_of_labels: bool,
    },
}

/// The partitions of a request, and its consistency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionScope {
    /// The numbers of the partitions.
    pub partitions: Vec<u32>,
    /// The consistency of the look-up.
    pub consistency: ReadConsistency,
}

/// The data of a request: partitions, tenant and time range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantScope {
    /// The partitions to read.
    pub partitions: PartitionScope,
    /// The tenant whose data is read.
    pub tenant: TenantId,
    /// The time range of the data.
    pub range: TimeRange,
}

/// The fields of a look-up of series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesRequest {
    /// The data to read.
    pub scope: TenantScope,
    /// The matchers, all of which must match.
    pub matchers: Vec<MatcherText>,
    /// True if only the newest sample of each series is needed.
    pub is_newest_only: bool,
    /// The number of series that can still be found.
    pub series_max: u64,
}

/// A matcher as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatcherText {
    /// The name of the label.
    pub name: String,
    /// The operator.
    pub op: MatchOp,
    /// The value or the pattern.
    pub value: Vec<u8>,
}

impl MatcherText {
    /// Returns the text of a matcher.
    pub fn from_matcher(matcher: &Matcher) -> Self {
        Self {
            name: matcher.name().to_owned(),
            op: matcher.op(),
            value: matcher.value().to_vec(),
        }
    }

    /// Compiles the matcher. Fails if the regular expression is invalid.
    pub fn compile(&self) -> Result<Matcher, firn_model::error::Error> {
        Matcher::new(&self.name, self.op, &self.value)
    }
}

const OPEN: u8 = 1;
const COLUMN: u8 = 2;
const LABELS: u8 = 3;
const READ: u8 = 4;
const LABEL_NAMES: u8 = 5;
const LABEL_VALUES: u8 = 6;
const EXEMPLARS: u8 = 7;
const METADATA: u8 = 8;
const LOSSES: u8 = 9;

const OPS: [MatchOp; 4] = [
    MatchOp::Equal,
    MatchOp::NotEqual,
    MatchOp::Regex,
    MatchOp::NotRegex,
];

impl TimedReadRequest {
    /// Returns the frame of the request.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![self.request.kind()];
        push_varint(self.timeout_ms, &mut bytes);
        push_varint(self.budget_bytes, &mut bytes);
        self.request.push_fields(&mut bytes);
        bytes
    }

    /// Decodes the frame of a request.
    ///
    /// # Errors
    ///
    /// [`MalformedFrame`] if `bytes` are not exactly one request.
    pub fn decode(bytes: &[u8]) -> Result<Self, MalformedFrame> {
        let mut reader = PeerFrameReader::new(bytes);
        let kind = reader.u8()?;
        let timed = Self {
            timeout_ms: reader.varint()?,
            budget_bytes: reader.varint()?,
            request: PeerReadRequest::read_fields(kind, &mut reader)?,
        };
        reader.finish()?;
        Ok(timed)
    }
}

impl PeerReadRequest {
    fn kind(&self) -> u8 {
        match self {
            Self::Open { .. } => OPEN,
            Self::Column(_) => COLUMN,
            Self::Labels(_) => LABELS,
            Self::Read(_) => READ,
            Self::LabelNames(_) => LABEL_NAMES,
            Self::LabelValues { .. } => LABEL_VALUES,
            Self::Exemplars { .. } => EXEMPLARS,
            Self::Metadata { .. } => METADATA,
            Self::Losses { .. } => LOSSES,
        }
    }

    fn push_fields(&self, into: &mut Vec<u8>) {
        match self {
            Self::Open {
                series,
                is_labels_only,
            } => {
                into.push(u8::from(*is_labels_only));
                series.push(into);
            }
            Self::Column(name) => push_prefixed(name.as_bytes(), into),
            Self::Labels(series) | Self::Read(series) => {
                push_count(series.start, into);
                push_count(series.end, into);
            }
            Self::LabelNames(series) => series.push(into),
            Self::LabelValues { name, series } => {
                push_prefixed(name.as_bytes(), into);
                series.push(into);
            }
            Self::Exemplars { scope, sets } => {
                scope.push(into);
                push_count(sets.len(), into);
                sets.iter().for_each(|set| push_matchers(set, into));
            }
            Self::Metadata { tenant, metric } => {
                push_tenant(tenant, into);
                push_option(metric.as_deref(), into, |metric, into| {
                    push_prefixed(metric.as_bytes(), into);
                });
            }
            Self::Losses {
                scope,
                is_of_labels,
            } => {
                scope.push(into);
                into.push(u8::from(*is_of_labels));
            }
        }
    }

    fn read_fields(kind: u8, reader: &mut PeerFrameReader<'_>) -> Result<Self, MalformedFrame> {
        Ok(match kind {
            OPEN => Self::Open {
                is_labels_only: reader.bool()?,
                series: SeriesRequest::read(reader)?,
            },
            COLUMN => Self::Column(reader.text()?.to_owned()),
            LABELS => Self::Labels(reader.usize()?..reader.usize()?),
            READ => Self::Read(reader.usize()?..reader.usize()?),
            LABEL_NAMES => Self::LabelNames(SeriesRequest::read(reader)?),
            LABEL_VALUES => Self::LabelValues {
                name: reader.text()?.to_owned(),
                series: SeriesRequest::read(reader)?,
            },
            EXEMPLARS => Self::Exemplars {
                scope: TenantScope::read(reader)?,
                sets: read_matcher_sets(reader)?,
            },
            METADATA => Self::Metadata {
                tenant: read_tenant(reader)?,
                metric: reader.option(|reader| reader.text().map(str::to_owned))?,
            },
            LOSSES => Self::Losses {
                scope: TenantScope::read(reader)?,
                is_of_labels: reader.bool()?,
            },
            _ => return Err(MalformedFrame("unknown kind of request")),
        })
    }
}

impl PartitionScope {
    fn push(&self, into: &mut Vec<u8>) {
        into.push(u8::from(self.consistency == ReadConsistency::Strong));
        push_count(self.partitions.len(), into);
        for partition in &self.partitions {
            push_varint(u64::from(*partition), into);
        }
    }

    fn read(reader: &mut PeerFrameReader<'_>) -> Result<Self, MalformedFrame> {
        let consistency = if reader.bool()? {
            ReadConsistency::Strong
        } else {
            ReadConsistency::Eventual
        };
        let count = reader.count(1)?;
        let mut partitions = Vec::with_capacity(count);
        for _ in 0..count {
            partitions.push(reader.u32()?);
        }
        Ok(Self {
            partitions,
            consistency,
        })
    }
}

impl TenantScope {
    fn push(&self, into: &mut Vec<u8>) {
        self.partitions.push(into);
        push_tenant(&self.tenant, into);
        push_zigzag(self.range.min, into);
        push_zigzag(self.range.max, into);
    }

    fn read(reader: &mut PeerFrameReader<'_>) -> Result<Self, MalformedFrame> {
        Ok(Self {
            partitions: PartitionScope::read(reader)?,
            tenant: read_tenant(reader)?,
            range: TimeRange::new(reader.zigzag()?, reader.zigzag()?),
        })
    }
}

impl SeriesRequest {
    fn push(&self, into: &mut Vec<u8>) {
        self.scope.push(into);
        push_matchers(&self.matchers, into);
        into.push(u8::from(self.is_newest_only));
        push_varint(self.series_max, into);
    }

    fn read(reader: &mut PeerFrameReader<'_>) -> Result<Self, MalformedFrame> {
        Ok(Self {
            scope: TenantScope::read(reader)?,
            matchers: read_matchers(reader)?,
            is_newest_only: reader.bool()?,
            series_max: reader.varint()?,
        })
    }
}

fn push_tenant(tenant: &TenantId, into: &mut Vec<u8>) {
    push_prefixed(tenant.as_str().as_bytes(), into);
}

fn read_tenant(reader: &mut PeerFrameReader<'_>) -> Result<TenantId, MalformedFrame> {
    TenantId::new(reader.text()?).map_err(|_| MalformedFrame("invalid tenant id"))
}

fn push_matchers(matchers: &[MatcherText], into: &mut Vec<u8>) {
    push_count(matchers.len(), into);
    for matcher in matchers {
        push_prefixed(matcher.name.as_bytes(), into);
        let op = OPS.iter().position(|op| *op == matcher.op);
        into.push(op.expect("all operators are listed") as u8);
        push_prefixed(&matcher.value, into);
    }
}

fn read_matchers(reader: &mut PeerFrameReader<'_>) -> Result<Vec<MatcherText>, MalformedFrame> {
    let count = reader.count(3)?;
    let mut matchers = Vec::with_capacity(count);
    for _ in 0..count {
        let name = reader.text()?.to_owned();
        let op = OPS.get(usize::from(reader.u8()?)).copied();
        matchers.push(MatcherText {
            name,
            op: op.ok_or(MalformedFrame("unknown operator of a matcher"))?,
            value: reader.prefixed()?.to_vec(),
        });
    }
    Ok(matchers)
}

fn read_matcher_sets(
    reader: &mut PeerFrameReader<'_>,
) -> Result<Vec<Vec<MatcherText>>, MalformedFrame> {
    let count = reader.count(1)?;
    let mut sets = Vec::with_capacity(count);
    for _ in 0..count {
        sets.push(read_matchers(reader)?);
    }
    Ok(sets)
}
