//! Files of active queries: those that ran in a server when the file was copied or the server
//! crashed.
//!
//! There are two formats: Prometheus's list of JSON objects separated by zero bytes, and Firn's
//! pages (`docs/format/queries-active.md`). Free and torn slots are skipped.

use serde_json::Value;

/// Magic bytes at the start of Firn's file of active queries.
pub const FIRN_MAGIC: &[u8] = b"FIRNACT\0";

const PAGE_BYTES: usize = 4096;

/// Length of a slot's header: length and checksum. The checksum is ignored, because a torn
/// expression is unlikely to be valid PromQL.
const FRAME_BYTES: usize = 8;

/// Length of the fixed fields: started, start, end, step, length of the whole expression.
const NUMBERS_BYTES: usize = 5 * 8;

/// Returns the expressions in Firn's file. Expressions that were truncated are left out.
pub fn parse_firn_file(bytes: &[u8]) -> Vec<String> {
    let slots = bytes.chunks(PAGE_BYTES).skip(1);
    slots.filter_map(slot_expression).collect()
}

fn slot_expression(slot: &[u8]) -> Option<String> {
    let length = u32::from_le_bytes(*slot.first_chunk()?) as usize;
    let payload = slot.get(FRAME_BYTES..)?.get(..length)?;
    let (numbers, rest) = payload.split_at_checked(NUMBERS_BYTES)?;
    let whole_bytes = u64::from_le_bytes(*numbers.last_chunk()?);
    let expression = skip_short_text(skip_short_text(rest)?)?;
    let is_whole = expression.len() as u64 == whole_bytes && !expression.is_empty();
    is_whole.then(|| String::from_utf8(expression.to_vec()).ok())?
}

/// Returns the bytes after a text that is preceded by its length in one byte.
fn skip_short_text(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first()?;
    rest.get(usize::from(*length)..)
}

/// Returns the expressions in Prometheus's file, or in a JSON list. Fails with a description of the
/// malformed part.
pub fn parse_prometheus_file(text: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    if let Ok(Value::Array(items)) = serde_json::from_str(text) {
        for item in items {
            let expression = item.as_str().or_else(|| item["query"].as_str());
            let expression = expression.ok_or_else(|| format!("no query in {item}"))?;
            found.push(expression.to_owned());
        }
        return Ok(found);
    }
    let is_frame = |c: char| matches!(c, '[' | ']' | ',') || c.is_whitespace();
    for slot in text.split('\0') {
        let mut slot = slot.trim_matches(is_frame);
        while !slot.is_empty() {
            let mut entries = serde_json::Deserializer::from_str(slot).into_iter::<Value>();
            let entry = match entries.next() {
                Some(Ok(entry)) => entry,
                Some(Err(e)) => return Err(format!("not a list of active queries: {e}")),
                None => break,
            };
            let end = entries.byte_offset();
            found.extend(entry["query"].as_str().map(str::to_owned));
            slot = slot[end..].trim_matches(is_frame);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prometheus_file_with_free_slots_is_read() {
        let text = "[{\"query\":\"up\",\"timestamp_sec\":1},\0\0\0{\"query\":\"a[5m]\"},\0\0";
        assert_eq!(parse_prometheus_file(text).unwrap(), ["up", "a[5m]"]);
        let two = "[{\"query\":\"up\"},{\"query\":\"b\"},";
        assert_eq!(parse_prometheus_file(two).unwrap(), ["up", "b"]);
        assert_eq!(
            parse_prometheus_file("[\"x\", {\"query\": \"y\"}]").unwrap(),
            ["x", "y"]
        );
        assert_eq!(
            parse_prometheus_file("[\0\0").unwrap(),
            Vec::<String>::new()
        );
        let e = parse_prometheus_file("[{\"query\":").unwrap_err();
        assert!(e.starts_with("not a list of active queries: "), "{e}");
        let e = parse_prometheus_file("[1]").unwrap_err();
        assert_eq!(e, "no query in 1");
    }

    #[test]
    fn firn_file_with_free_and_torn_slots_is_read() {
        let slot = |expression: &str, whole_bytes: u64| {
            let mut payload = vec![0; NUMBERS_BYTES - 8];
            payload.extend(whole_bytes.to_le_bytes());
            payload.extend(b"\x05query\x01t");
            payload.extend(expression.as_bytes());
            let mut slot = (payload.len() as u32).to_le_bytes().to_vec();
            slot.extend([0; 4]);
            slot.extend(payload);
            slot.resize(PAGE_BYTES, 0);
            slot
        };
        let mut torn = slot("up", 2);
        torn[0] = 255;
        torn[1] = 255;
        let free = vec![0; PAGE_BYTES];
        let file = [
            free.clone(),
            slot("rate(x[5m])", 11),
            free,
            torn,
            slot("cut", 9),
        ]
        .concat();
        assert_eq!(parse_firn_file(&file), ["rate(x[5m])"]);
        assert_eq!(parse_firn_file(&file[..4150]), Vec::<String>::new());
    }
}
