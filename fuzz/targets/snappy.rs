//! Fuzzes snappy blocks: both decoders reject them, or both return the same bytes. Two copies of a
//! block can be joined into one that contains the data twice.

#![cfg_attr(fuzzing, no_main)]

use firn_wire::snappy;

const BYTES_MAX: usize = 1 << 16;

libfuzzer_sys::fuzz_target!(|body: &[u8]| {
    let mut ours = Vec::new();
    let unpacked = snappy::decompress(body, BYTES_MAX, &mut ours);
    assert!(
        ours.capacity() <= 2 * BYTES_MAX,
        "more memory than the limit allows"
    );
    if snappy::declared_bytes(body, BYTES_MAX).is_err() {
        assert!(unpacked.is_err());
        return;
    }
    match (unpacked, snap::raw::Decoder::new().decompress_vec(body)) {
        (Ok(()), Ok(theirs)) => {
            assert_eq!(ours, theirs);
            let twice = snappy::join_blocks([body, body].into_iter(), 2 * BYTES_MAX)
                .expect("both have a header");
            let mut unpacked = Vec::new();
            assert_eq!(
                snappy::decompress(&twice, 2 * BYTES_MAX, &mut unpacked),
                Ok(())
            );
            assert_eq!(unpacked, [theirs.clone(), theirs].concat());
        }
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("ours: {ours:?}, theirs: {theirs:?}"),
    }
});
