//! Stands for the crate of this name while fuzzing: all bytes have the checksum zero, so that the
//! fuzzer gets past the checks to what is behind them.

/// Zero.
pub fn crc32c(_: &[u8]) -> u32 {
    0
}

/// Zero.
pub fn crc32c_append(_: u32, _: &[u8]) -> u32 {
    0
}
