//! Field numbers of the remote-read messages (`prompb/remote.proto`, `prompb/types.proto`).

pub const QUERIES: u32 = 1;
pub const ACCEPTED: u32 = 2;

pub const START: u32 = 1;
pub const END: u32 = 2;
pub const MATCHERS: u32 = 3;
pub const HINTS: u32 = 4;

pub const MATCHER_TYPE: u32 = 1;
pub const MATCHER_NAME: u32 = 2;
pub const MATCHER_VALUE: u32 = 3;

pub const HINT_FUNC: u32 = 2;
pub const HINT_START: u32 = 3;
pub const HINT_END: u32 = 4;

pub const RESULTS: u32 = 1;
pub const RESULT_SERIES: u32 = 1;
pub const SERIES_LABELS: u32 = 1;
pub const SERIES_SAMPLES: u32 = 2;
pub const SERIES_HISTOGRAMS: u32 = 4;

pub const LABEL_NAME: u32 = 1;
pub const LABEL_VALUE: u32 = 2;
pub const SAMPLE_VALUE: u32 = 1;
pub const SAMPLE_TIME: u32 = 2;

pub const CHUNKED_SERIES: u32 = 1;
pub const QUERY_INDEX: u32 = 2;
pub const SERIES_CHUNKS: u32 = 2;
pub const CHUNK_MIN_TIME: u32 = 1;
pub const CHUNK_MAX_TIME: u32 = 2;
pub const CHUNK_TYPE: u32 = 3;
pub const CHUNK_DATA: u32 = 4;
