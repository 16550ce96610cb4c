//! One label of all series of a union: the head's column, extended by the series of blocks.

use super::series::UnionSeriesTable;
use firn_model::budget::Reservation;
use firn_model::cancel::CancelToken;
use firn_model::columns::LabelColumn;
use firn_model::error::Error;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Number of series between checks of the cancel flag.
const CANCEL_EACH: usize = 4_096;

/// Memory of the value id of a pair, in bytes.
const ID_BYTES: usize = size_of::<Option<u32>>();

/// Memory of a distinct value without its bytes.
const VALUE_BYTES: usize = 64;

/// Appends the values of the label `name` for the series after those of the head.
pub(super) fn extend(
    mut column: LabelColumn,
    joined: &UnionSeriesTable,
    name: &str,
    cancel: &CancelToken,
    memory: &mut Reservation,
) -> Result<LabelColumn, Error> {
    memory.grow(joined.block_only_count() * size_of::<u32>() + joined.pairs().len() * ID_BYTES)?;
    let values = column.values.iter().cloned().zip(0..);
    let mut numbers: FxHashMap<Arc<[u8]>, u32> = values.collect();
    let mut id_of = |value: &[u8]| {
        if let Some(id) = numbers.get(value) {
            return Ok::<_, Error>(*id);
        }
        memory.grow(VALUE_BYTES + value.len())?;
        let value: Arc<[u8]> = value.into();
        column.values.push(value.clone());
        let id = column.values.len() as u32 - 1;
        numbers.insert(value, id);
        Ok(id)
    };
    let mut ids = Vec::with_capacity(joined.pairs().len());
    for (of_name, value) in joined.pairs().iter() {
        let is_it = of_name == name.as_bytes();
        ids.push(is_it.then(|| id_of(value)).transpose()?);
    }
    let mut absent = None;
    for number in 0..joined.block_only_count() {
        if number % CANCEL_EACH == 0 {
            cancel.check()?;
        }
        let pairs = joined.pairs_of(number).iter();
        let id = pairs.flat_map(|pair| ids[*pair as usize]).next();
        let id = match id.or(absent) {
            Some(id) => id,
            None => *absent.insert(id_of(&[])?),
        };
        column.ids.push(id);
    }
    Ok(column)
}
