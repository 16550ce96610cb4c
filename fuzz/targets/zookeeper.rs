//! Fuzzes the messages of a ZooKeeper server: the division into pieces has no influence, and
//! decoded data is not longer than its frame.

#![cfg_attr(fuzzing, no_main)]

use firn_wire::zookeeper::{
    CHILDREN_MAX, ZookeeperFrameBuffer, ZookeeperMessage, decode_session_timeout_ms,
};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let whole = said(bytes, bytes.len().max(1));
    assert_eq!(whole, said(bytes, 3));
});

fn said(bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut frames, mut all) = (ZookeeperFrameBuffer::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        frames.buffer_mut().extend_from_slice(piece);
        loop {
            let frame = match frames.take_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(e) => {
                    all.push(e.message);
                    return all;
                }
            };
            assert!(frame.len() <= bytes.len());
            all.push(format!(
                "{:?} {}",
                decode_session_timeout_ms(&frame),
                shown(&frame)
            ));
        }
    }
    all
}

fn shown(frame: &[u8]) -> String {
    let said = ZookeeperMessage::decode(frame);
    if let Ok(ZookeeperMessage::Reply(reply)) = &said {
        if let Ok(data) = reply.decode_data() {
            assert!(data.len() <= frame.len());
        }
        if let Ok(children) = reply.decode_children() {
            assert!(children.len() <= CHILDREN_MAX && 4 * children.len() <= frame.len());
        }
        return format!(
            "{said:?} {:?} {:?}",
            reply.decode_data(),
            reply.decode_children()
        );
    }
    format!("{said:?}")
}
