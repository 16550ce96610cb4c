//! Replacement for the crate of this name while fuzzing: all checksums are zero, so that the fuzzer
//! reaches the code behind their validation.

/// Returns zero, whatever the bytes are.
pub fn crc32c(_: &[u8]) -> u32 {
    0
}

/// Returns zero, whatever the bytes are.
pub fn crc32c_append(_: u32, _: &[u8]) -> u32 {
    0
}
