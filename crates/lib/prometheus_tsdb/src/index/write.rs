//! Writes an index of version 2 in the layout of Prometheus 3.14, which has no label indexes any
//! more.
//!
//! Symbols precede the series that refer to them, but are complete only after the last series.
//! Therefore series go to a scratch file with symbols numbered by first use, and are copied from
//! there after the symbols were sorted. Postings are collected from the scratch file in several
//! passes, each for as many label names as fit into memory.
//!
//! Memory: each distinct name and value once with about 60 bytes of overhead, 4 bytes for each
//! series, and during a pass 8 bytes for each pair of series and label: as many as the caller
//! allows, but at least one pair for each series.

use super::format::{HEADER_BYTES, IndexTableOfContents, MAGIC, SERIES_ALIGN};
use super::read::ChunkMeta;
use crate::bytes::{
    TsdbByteCursor, extend_checksum, push_checksum, push_prefixed, push_uvarint, push_varint,
};
use crate::error::{MalformedTsdbBytes, TsdbError};
use crate::folder::{BlockFile, BlockFileOutput, BlockFolder, ScratchFileReader};
use firn_model::labels::LabelsRef;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// The version that is written.
const VERSION: u8 = 2;

/// Alignment of postings in bytes.
const POSTINGS_ALIGN: u64 = 4;

/// Memory of a pair of value and series in a pass over postings, in bytes.
const PAIR_BYTES: usize = size_of::<(u32, u32)>();

/// Collects the series of an index in a scratch file until [`TsdbIndexWriter::finish`] writes the
/// index.
#[derive(Debug)]
pub(crate) struct TsdbIndexWriter {
    /// Symbols with their numbers, assigned by first use.
    symbols: BTreeMap<Box<[u8]>, u32>,
    /// Number of series that have each label name, by the number of its symbol.
    uses: FxHashMap<u32, u64>,
    scratch: BlockFileOutput,
    series_count: u64,
}

/// The state of writing the index: everything that is needed after all series were added.
struct TsdbIndexAssembly {
    index: BlockFileOutput,
    /// Index of each symbol in the sorted table, by its number.
    places: Vec<u32>,
    /// The sorted symbols.
    symbols: Vec<Box<[u8]>>,
    /// Reference of each series, in the order of their addition.
    series: Vec<u32>,
    scratch_bytes: u64,
    table: BlockFileOutput,
    table_entries: u32,
}

impl TsdbIndexWriter {
    /// Returns an index without series.
    pub fn new() -> Self {
        Self {
            // Upstream's symbol tables contain the empty string, which names the postings of all
            // series.
            symbols: BTreeMap::from([(Box::default(), 0)]),
            uses: FxHashMap::default(),
            scratch: BlockFileOutput::new(BlockFile::SeriesScratch),
            series_count: 0,
        }
    }

    /// Returns the number of added series.
    pub fn series_count(&self) -> u64 {
        self.series_count
    }

    /// Adds a series with its chunks sorted by time. Series must be added in order of their labels.
    pub fn add<F: BlockFolder>(
        &mut self,
        folder: &mut F,
        labels: LabelsRef<'_>,
        chunks: &[ChunkMeta],
    ) -> Result<(), TsdbError> {
        let mut entry = Vec::new();
        push_uvarint(&mut entry, labels.pairs().count() as u64);
        for (name, value) in labels.pairs() {
            let name = self.intern(name)?;
            *self.uses.entry(name).or_default() += 1;
            push_uvarint(&mut entry, u64::from(name));
            push_uvarint(&mut entry, u64::from(self.intern(value)?));
        }
        push_uvarint(&mut entry, chunks.len() as u64);
        let (mut end, mut reference) = (0i64, 0u64);
        for (number, chunk) in chunks.iter().enumerate() {
            match number {
                0 => push_varint(&mut entry, chunk.range.min),
                _ => push_uvarint(&mut entry, chunk.range.min.wrapping_sub(end) as u64),
            }
            let length = chunk.range.max.wrapping_sub(chunk.range.min);
            push_uvarint(&mut entry, length as u64);
            match number {
                0 => push_uvarint(&mut entry, chunk.reference.0),
                _ => push_varint(&mut entry, chunk.reference.0.wrapping_sub(reference) as i64),
            }
            (end, reference) = (chunk.range.max, chunk.reference.0);
        }
        let mut framed = Vec::with_capacity(entry.len() + 5);
        push_prefixed(&mut framed, &entry);
        self.series_count += 1;
        self.scratch.push(folder, &framed)
    }

    fn intern(&mut self, symbol: &[u8]) -> Result<u32, TsdbError> {
        if let Some(number) = self.symbols.get(symbol) {
            return Ok(*number);
        }
        let number = u32::try_from(self.symbols.len());
        let number = number.map_err(|_| too_large("number of symbols"))?;
        self.symbols.insert(symbol.into(), number);
        Ok(number)
    }

    /// Writes the index. Postings are collected in `memory_bytes`, or more if one label needs it.
    /// Fails if the folder does or a limit of the format is exceeded.
    pub fn finish<F: BlockFolder>(
        mut self,
        folder: &mut F,
        memory_bytes: usize,
    ) -> Result<(), TsdbError> {
        self.scratch.flush(folder)?;
        let mut places = vec![0u32; self.symbols.len()];
        let mut symbols = Vec::with_capacity(self.symbols.len());
        for (place, (symbol, number)) in self.symbols.into_iter().enumerate() {
            // The number of symbols fits 32 bits.
            places[number as usize] = place as u32;
            symbols.push(symbol);
        }
        let mut names: Vec<(u32, u64)> = self.uses.into_iter().collect();
        names.sort_unstable_by_key(|(number, _)| places[*number as usize]);
        let mut layout = TsdbIndexAssembly {
            index: BlockFileOutput::new(BlockFile::Index),
            places,
            symbols,
            series: Vec::new(),
            scratch_bytes: self.scratch.len(),
            table: BlockFileOutput::new(BlockFile::TableScratch),
            table_entries: 0,
        };
        layout.write(folder, &names, memory_bytes)
    }
}

impl TsdbIndexAssembly {
    fn write<F: BlockFolder>(
        &mut self,
        folder: &mut F,
        names: &[(u32, u64)],
        memory_bytes: usize,
    ) -> Result<(), TsdbError> {
        let mut header = MAGIC.to_be_bytes().to_vec();
        header.push(VERSION);
        self.index.push(folder, &header)?;
        let mut contents = IndexTableOfContents {
            symbols: HEADER_BYTES,
            ..IndexTableOfContents::default()
        };
        self.write_symbols(folder)?;
        contents.series = self.index.len();
        self.write_series(folder)?;
        contents.label_indexes = self.index.len();
        contents.postings = self.index.len();
        let all = std::mem::take(&mut self.series);
        self.write_postings(folder, &[], &[], &all)?;
        self.series = all;
        let pairs_max = (memory_bytes / PAIR_BYTES).max(self.series.len()) as u64;
        let mut rest = names;
        while !rest.is_empty() {
            let mut pairs = 0;
            let fits = |(_, uses): &&(u32, u64)| {
                pairs += uses;
                pairs <= pairs_max
            };
            let count = rest.iter().take_while(fits).count().max(1);
            let (group, behind) = rest.split_at(count);
            self.write_group(folder, group)?;
            rest = behind;
        }
        contents.label_offset_table = self.index.len();
        contents.postings_offset_table = self.index.len();
        self.write_table(folder)?;
        self.index.push(folder, &contents.write())?;
        self.index.flush(folder)
    }

    fn write_symbols<F: BlockFolder>(&mut self, folder: &mut F) -> Result<(), TsdbError> {
        let mut prefix = Vec::new();
        let mut bytes = 4u64;
        for symbol in &self.symbols {
            prefix.clear();
            push_uvarint(&mut prefix, symbol.len() as u64);
            bytes += (prefix.len() + symbol.len()) as u64;
        }
        let bytes = u32::try_from(bytes).map_err(|_| too_large("table of symbols"))?;
        self.index.push(folder, &bytes.to_be_bytes())?;
        // The number of symbols fits 32 bits.
        let count = (self.symbols.len() as u32).to_be_bytes();
        let mut sum = extend_checksum(0, &count);
        self.index.push(folder, &count)?;
        for symbol in &self.symbols {
            prefix.clear();
            push_prefixed(&mut prefix, symbol);
            sum = extend_checksum(sum, &prefix);
            self.index.push(folder, &prefix)?;
        }
        self.index.push(folder, &sum.to_be_bytes())
    }

    fn write_series<F: BlockFolder>(&mut self, folder: &mut F) -> Result<(), TsdbError> {
        let mut series = IndexScratchReader::new(self.scratch_bytes);
        let (mut framed, mut entry) = (Vec::new(), Vec::new());
        while let Some(written) = series.next(folder)? {
            self.index.pad(folder, SERIES_ALIGN)?;
            let number = u32::try_from(self.index.len() / SERIES_ALIGN);
            self.series.push(number.map_err(|_| too_large("series"))?);
            entry.clear();
            push_uvarint(&mut entry, written.labels.len() as u64);
            for (name, value) in &written.labels {
                push_uvarint(&mut entry, u64::from(self.places[*name as usize]));
                push_uvarint(&mut entry, u64::from(self.places[*value as usize]));
            }
            entry.extend_from_slice(&written.chunks);
            framed.clear();
            push_uvarint(&mut framed, entry.len() as u64);
            push_checksum(&mut entry, 0);
            framed.extend_from_slice(&entry);
            self.index.push(folder, &framed)?;
        }
        Ok(())
    }

    /// Writes the postings of these label names, which are sorted. Each group takes one pass over
    /// the scratch file.
    fn write_group<F: BlockFolder>(
        &mut self,
        folder: &mut F,
        names: &[(u32, u64)],
    ) -> Result<(), TsdbError> {
        let mut pairs: Vec<Vec<(u32, u32)>> = names.iter().map(|_| Vec::new()).collect();
        let group = names.iter().enumerate();
        let group: FxHashMap<u32, usize> = group.map(|(i, (name, _))| (*name, i)).collect();
        let mut series = IndexScratchReader::new(self.scratch_bytes);
        let mut count = 0;
        while let Some(written) = series.next(folder)? {
            let number = self.series[count];
            for (name, value) in &written.labels {
                if let Some(place) = group.get(name) {
                    pairs[*place].push((self.places[*value as usize], number));
                }
            }
            count += 1;
        }
        let mut numbers = Vec::new();
        for ((name, _), mut pairs) in names.iter().zip(pairs) {
            pairs.sort_unstable();
            let name = self.symbols[self.places[*name as usize] as usize].clone();
            for same in pairs.chunk_by(|a, b| a.0 == b.0) {
                numbers.clear();
                numbers.extend(same.iter().map(|(_, number)| *number));
                let value = self.symbols[same[0].0 as usize].clone();
                self.write_postings(folder, &name, &value, &numbers)?;
            }
        }
        Ok(())
    }

    /// Writes the series that have a label, and the label's entry of the offset table to scratch.
    fn write_postings<F: BlockFolder>(
        &mut self,
        folder: &mut F,
        name: &[u8],
        value: &[u8],
        series: &[u32],
    ) -> Result<(), TsdbError> {
        self.index.pad(folder, POSTINGS_ALIGN)?;
        let mut entry = Vec::new();
        push_uvarint(&mut entry, 2);
        push_prefixed(&mut entry, name);
        push_prefixed(&mut entry, value);
        push_uvarint(&mut entry, self.index.len());
        self.table.push(folder, &entry)?;
        let entries = self.table_entries.checked_add(1);
        self.table_entries = entries.ok_or_else(|| too_large("number of postings"))?;
        let bytes = u32::try_from(4 + 4 * series.len() as u64);
        let bytes = bytes.map_err(|_| too_large("postings of a label"))?;
        let mut out = Vec::with_capacity(8 + 4 * series.len() + 4);
        out.extend_from_slice(&bytes.to_be_bytes());
        out.extend_from_slice(&(series.len() as u32).to_be_bytes());
        series
            .iter()
            .for_each(|number| out.extend_from_slice(&number.to_be_bytes()));
        push_checksum(&mut out, 4);
        self.index.push(folder, &out)
    }

    fn write_table<F: BlockFolder>(&mut self, folder: &mut F) -> Result<(), TsdbError> {
        self.table.flush(folder)?;
        let bytes = u32::try_from(4 + self.table.len());
        let bytes = bytes.map_err(|_| too_large("table of postings"))?;
        self.index.push(folder, &bytes.to_be_bytes())?;
        let count = self.table_entries.to_be_bytes();
        let mut sum = extend_checksum(0, &count);
        self.index.push(folder, &count)?;
        let mut scratch = ScratchFileReader::new(BlockFile::TableScratch, self.table.len());
        loop {
            let piece = scratch.read_piece(folder)?.to_vec();
            if piece.is_empty() {
                break;
            }
            sum = extend_checksum(sum, &piece);
            self.index.push(folder, &piece)?;
        }
        self.index.push(folder, &sum.to_be_bytes())
    }
}

/// A series as stored in the scratch file, with symbols numbered by first use.
#[derive(Debug, Default)]
struct IndexScratchSeries {
    /// Symbol numbers of names and values.
    labels: Vec<(u32, u32)>,
    /// The rest of the entry, which is copied unchanged.
    chunks: Vec<u8>,
}

/// A sequential reader of the series in the scratch file.
struct IndexScratchReader {
    scratch: ScratchFileReader,
    rest: Vec<u8>,
    place: usize,
    series: IndexScratchSeries,
}

impl IndexScratchReader {
    fn new(bytes: u64) -> Self {
        Self {
            scratch: ScratchFileReader::new(BlockFile::SeriesScratch, bytes),
            rest: Vec::new(),
            place: 0,
            series: IndexScratchSeries::default(),
        }
    }

    fn next<F: BlockFolder>(
        &mut self,
        folder: &mut F,
    ) -> Result<Option<&IndexScratchSeries>, TsdbError> {
        loop {
            let rest = self.rest.get(self.place..).unwrap_or_default();
            let mut cursor = TsdbByteCursor::new(rest);
            if let Ok(entry) = cursor.read_prefixed() {
                let read = self.series.read(entry);
                self.place = self.rest.len() - cursor.rest().len();
                read.map_err(|error| TsdbError::Damaged {
                    file: BlockFile::SeriesScratch.path(),
                    offset: 0,
                    what: error.to_string(),
                })?;
                return Ok(Some(&self.series));
            }
            let piece = self.scratch.read_piece(folder)?;
            if piece.is_empty() {
                return Ok(None);
            }
            self.rest.drain(..self.place);
            self.place = 0;
            self.rest.extend_from_slice(piece);
        }
    }
}

impl IndexScratchSeries {
    fn read(&mut self, entry: &[u8]) -> Result<(), MalformedTsdbBytes> {
        self.labels.clear();
        let mut cursor = TsdbByteCursor::new(entry);
        for _ in 0..cursor.read_count(2)? {
            let (name, value) = (cursor.read_uvarint()?, cursor.read_uvarint()?);
            self.labels.push((name as u32, value as u32));
        }
        self.chunks.clear();
        self.chunks.extend_from_slice(cursor.rest());
        Ok(())
    }
}

fn too_large(what: &str) -> TsdbError {
    TsdbError::Refused(format!("{what} exceeds the limits of an index"))
}
