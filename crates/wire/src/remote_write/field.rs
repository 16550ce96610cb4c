//! Numbers of the fields of `WriteRequest` and what is in it.

pub(super) const REQUEST_SERIES: u32 = 1;
pub(super) const REQUEST_METADATA: u32 = 3;
pub(super) const SERIES_LABEL: u32 = 1;
pub(super) const SERIES_SAMPLE: u32 = 2;
pub(super) const SERIES_EXEMPLAR: u32 = 3;
pub(super) const SERIES_HISTOGRAM: u32 = 4;
pub(super) const SAMPLE_VALUE: u32 = 1;
pub(super) const SAMPLE_TIME: u32 = 2;
pub(super) const LABEL_NAME: u32 = 1;
pub(super) const LABEL_VALUE: u32 = 2;
pub(super) const EXEMPLAR_LABEL: u32 = 1;
pub(super) const EXEMPLAR_VALUE: u32 = 2;
pub(super) const EXEMPLAR_TIME: u32 = 3;
