//! The codec of the RPC: messages are bytes, which the frames of this crate define.

use bytes::{Buf, BufMut, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// The path of an append.
pub(crate) const APPEND_PATH: &str = "/firn.Peer/Append";

/// The path of an exchange of member states.
pub(crate) const EXCHANGE_PATH: &str = "/firn.Peer/Exchange";

/// The path of a stream of reads.
pub(crate) const READ_PATH: &str = "/firn.Peer/Read";

/// Passes messages on as bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> Self::Encoder {
        RawCodec
    }

    fn decoder(&mut self) -> Self::Decoder {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

/// Passes messages on as bytes. Those that are sent may be in several buffers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuffersCodec;

impl Codec for BuffersCodec {
    type Encode = Vec<Bytes>;
    type Decode = Bytes;
    type Encoder = BuffersCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> Self::Encoder {
        BuffersCodec
    }

    fn decoder(&mut self) -> Self::Decoder {
        RawCodec
    }
}

impl Encoder for BuffersCodec {
    type Item = Vec<Bytes>;
    type Error = Status;

    fn encode(&mut self, item: Vec<Bytes>, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.reserve(item.iter().map(Bytes::len).sum());
        item.into_iter().for_each(|buffer| into.put(buffer));
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
