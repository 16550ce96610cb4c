//! Field numbers of `WriteRequest` and the messages in it; [`interned`] contains those of version
//! 2.0 that differ.

pub(super) const REQUEST_SERIES: u32 = 1;
pub(super) const REQUEST_METADATA: u32 = 3;
pub(super) const SERIES_LABEL: u32 = 1;
pub(super) const SERIES_SAMPLE: u32 = 2;
pub(super) const SERIES_EXEMPLAR: u32 = 3;
pub(super) const SERIES_HISTOGRAM: u32 = 4;
pub(super) const SAMPLE_VALUE: u32 = 1;
pub(super) const SAMPLE_TIME: u32 = 2;
pub(super) const SAMPLE_START: u32 = 3;
pub(super) const LABEL_NAME: u32 = 1;
pub(super) const LABEL_VALUE: u32 = 2;
pub(super) const EXEMPLAR_LABEL: u32 = 1;
pub(super) const EXEMPLAR_VALUE: u32 = 2;
pub(super) const EXEMPLAR_TIME: u32 = 3;
pub(super) const METADATA_TYPE: u32 = 1;
pub(super) const METADATA_NAME: u32 = 2;
pub(super) const METADATA_HELP: u32 = 4;
pub(super) const METADATA_UNIT: u32 = 5;

/// Field numbers of `io.prometheus.write.v2.Request` and the messages in it, where they differ from
/// version 1.0.
pub(super) mod interned {
    pub const REQUEST_SYMBOL: u32 = 4;
    pub const REQUEST_SERIES: u32 = 5;
    pub const SERIES_LABEL_REFS: u32 = 1;
    pub const SERIES_SAMPLE: u32 = 2;
    pub const SERIES_HISTOGRAM: u32 = 3;
    pub const SERIES_EXEMPLAR: u32 = 4;
    pub const SERIES_METADATA: u32 = 5;
    pub const EXEMPLAR_LABEL_REFS: u32 = 1;
    pub const METADATA_TYPE: u32 = 1;
    pub const METADATA_HELP: u32 = 3;
    pub const METADATA_UNIT: u32 = 4;
}
