//! Fuzzes the messages of a ZooKeeper server: the division into pieces has no influence, and
//! decoded data is not longer than its frame.

#![no_main]

use firn_wire::zookeeper::{CHILDREN_MAX, ZookeeperFrameBuffer, ZookeeperMessage, decode_session_timeout_ms};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let whole = said(bytes, bytes.len().max(1));
    assert_eq!(whole, said(bytes, 3));
});

fn said(bytes: &[u8], piece: usize) -> Vec<String> {
    let (mut frames, mut all) = (ZookeeperFrameBuffer::default(), Vec::new());
    for piece in bytes.chunks(piece) {
        frames.space().extend_from_slice(piece);
        loop {
            let frame = match frames.take() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(e) => {
                    all.push(e.message);
                    return all;
                }
            };
            assert!(frame.len() <= bytes.len());
            all.push(format!("{:?} {}", decode_session_timeout_ms(&frame), shown(&frame)));
        }
    }
    all
}

fn shown(frame: &[u8]) -> String {
    let said = ZookeeperMessage::read(frame);
    if let Ok(ZookeeperMessage::Reply(reply)) = &said {
        if let Ok(data) = reply.data() {
            assert!(data.len() <= frame.len());
        }
        if let Ok(children) = reply.children() {
            assert!(children.len() <= CHILDREN_MAX && 4 * children.len() <= frame.len());
        }
        return format!("{said:?} {:?} {:?}", reply.data(), reply.children());
    }
    format!("{said:?}")
}
