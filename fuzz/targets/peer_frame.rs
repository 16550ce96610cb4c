//! Fuzzes the frames of peers: decoding terminates within its memory, and a decoded value is
//! encoded to bytes that decode to it again.

#![cfg_attr(fuzzing, no_main)]

use firn_model::batch::Batch;
use firn_model::budget::Budget;
use firn_model::columns::SeriesBatch;
use firn_peer::frames::AnswerFrameKind;
use firn_peer::frames::answers::{
    decode_column, decode_exemplars, decode_labels, decode_metadata, decode_opened, decode_strings,
    decode_texts, encode_column, encode_labels, encode_opened, encode_strings,
};
use firn_peer::frames::append::decode_append;
use firn_peer::frames::append_parts::{decode_answers, encode_answers, split_parts};
use firn_peer::frames::columns::{decode_columns, encode_columns};
use firn_peer::frames::outcome::{decode_appended, encode_appended};
use firn_peer::frames::requests::TimedReadRequest;
use firn_peer::{decode_failure, encode_failure};

/// Returns the bytes that `encode` appends.
fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    bytes
}

fn append(bytes: &[u8]) {
    let mut batch = Batch::default();
    if let Ok(frame) = decode_append(bytes, &mut batch) {
        batch.assert_complete();
        assert_eq!(frame.prints.len(), batch.series_count());
    }
    if let Ok(appended) = decode_appended(bytes) {
        let again = encoded(|into| encode_appended(&appended, into));
        assert_eq!(decode_appended(&again), Ok(appended));
    }
    if let Ok(frames) = split_parts(bytes) {
        let parts: usize = frames.iter().map(|frame| frame.len()).sum();
        assert!(parts < bytes.len());
    }
    if let Ok(answers) = decode_answers(bytes, 2) {
        let again = encoded(|into| encode_answers(&answers, into));
        assert_eq!(decode_answers(&again, 2), Ok(answers));
    }
    if let Ok(failure) = decode_failure(bytes) {
        let again = encoded(|into| encode_failure(&failure, into));
        assert_eq!(decode_failure(&again), Ok(failure));
    }
}

fn samples(bytes: &[u8]) {
    let mut batch = SeriesBatch::default();
    let Ok(count) = decode_columns(bytes, &mut batch) else {
        return;
    };
    assert_eq!(batch.len(), count);
    let once = encoded(|into| encode_columns(&batch, 0..count, into));
    let mut again = SeriesBatch::default();
    assert_eq!(decode_columns(&once, &mut again), Ok(count));
    // Values may be NaN, so bytes are compared.
    assert_eq!(encoded(|into| encode_columns(&again, 0..count, into)), once);
}

fn labels(bytes: &[u8]) {
    let budget = Budget::new("labels", 64 << 20);
    let mut memory = budget.create_reservation();
    let Ok(chunk) = decode_labels(bytes, &mut memory) else {
        return;
    };
    let sets: Vec<_> = (0..chunk.len()).filter_map(|i| chunk.labels(i)).collect();
    let again = encoded(|into| encode_labels(sets.into_iter(), into));
    assert_eq!(decode_labels(&again, &mut memory), Ok(chunk));
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    append(bytes);
    samples(bytes);
    labels(bytes);
    if let Ok(request) = TimedReadRequest::decode(bytes) {
        assert_eq!(TimedReadRequest::decode(&request.encode()), Ok(request));
    }
    if let Ok(opened) = decode_opened(bytes) {
        let again = encoded(|into| encode_opened(&opened, into));
        assert_eq!(decode_opened(&again), Ok(opened));
    }
    let budget = Budget::new("column", 64 << 20);
    let mut memory = budget.create_reservation();
    if let Ok(column) = decode_column(bytes, &mut memory) {
        let again = encoded(|into| encode_column(&column, into));
        assert_eq!(decode_column(&again, &mut memory), Ok(column));
    }
    if let Ok(strings) = decode_strings(bytes) {
        let again = encoded(|into| encode_strings(&strings, into));
        assert_eq!(decode_strings(&again), Ok(strings));
    }
    let _ = decode_texts(bytes);
    let _ = decode_exemplars(bytes);
    let _ = decode_metadata(bytes);
    let _ = AnswerFrameKind::split(bytes);
});
