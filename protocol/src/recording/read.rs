//! Reading a recording: its index, or what takes its place, and chunks by number.

use std::fmt;
use std::io::{self, Read, Seek, SeekFrom};

use super::Damage;
use super::block::{
    BLOCK_LEN, BLOCK_MAGIC, BlockHead, CHUNK, Chunk, HEAD_LEN, HeadFields, INDEX, MAGIC, MAX_HEAD, Packed,
    STATE, TRAILER_LEN, TRAILER_MAGIC, VERSION, read_entries,
};
use super::decode::Block;

/// Whether a file that begins so is a recording.
#[must_use]
pub fn is_recording(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Why nothing of a recording can be used.
#[derive(Debug)]
pub enum OpenError {
    /// The system does not give it.
    Io(io::Error),
    /// It is something else.
    Foreign,
    /// A newer gtop wrote it, in this version of the format.
    TooNew(u16),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Foreign => f.write_str("this is no recording"),
            Self::TooNew(version) => write!(
                f,
                "the recording has format {version} and this gtop reads up to {VERSION}: use the gtop that wrote it"
            ),
        }
    }
}

impl std::error::Error for OpenError {}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// An open recording. It may be growing; see [`Recording::refresh`].
#[derive(Debug)]
pub struct Recording<R> {
    source: R,
    head: Vec<u8>,
    chunks: Vec<Chunk>,
    damage: Option<Damage>,
    complete: bool,
    /// Where the first block is that was not looked at.
    next: u64,
    /// Bytes read for what looked like a block and is none.
    wasted: u64,
    /// Whether chunks came that are not where they belong.
    disorder: bool,
}

/// What looks like a block and is none costs at least so much, in bytes, as calls to the system do.
const LEAST_WASTE: u64 = 256;
/// So many bytes may be wasted in any file; in a longer one, as many as it has.
const WASTE: u64 = 1 << 20;
/// State blocks that are tried when the nearest ones are damaged.
const STATE_TRIES: usize = 8;

/// How much of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All frames; records frames come with empty bodies.
    Side,
    /// Everything.
    Whole,
}

impl<R: Read + Seek> Recording<R> {
    /// Reads the head and the index; without an index, the heads of all chunks.
    pub fn open(source: R) -> Result<Self, OpenError> {
        let mut this = Self {
            source,
            head: Vec::new(),
            chunks: Vec::new(),
            damage: None,
            complete: false,
            next: 0,
            wasted: 0,
            disorder: false,
        };
        this.read_head()?;
        match this.read_index()? {
            Some(chunks) => {
                this.chunks = chunks;
                this.complete = true;
            }
            None => this.scan()?,
        }
        Ok(this)
    }

    /// What the file says of itself; nothing is known of a damaged one.
    #[must_use]
    pub fn head(&self) -> HeadFields<'_> {
        HeadFields::read(&self.head).unwrap_or_default()
    }

    /// The chunks, in order.
    #[must_use]
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// Whether the recording was ended; otherwise it may still grow.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// What of the file could not be used, as far as it was looked at; or that it breaks off.
    #[must_use]
    pub fn damage(&self) -> Option<Damage> {
        let broken = Damage {
            offset: self.next,
            what: "the recording breaks off here: it was not ended, or is still being written",
        };
        self.damage.clone().or_else(|| (!self.complete).then_some(broken))
    }

    /// The times of the first and the last frame, on the steady clock of who recorded.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        let ends = self.chunks.first().zip(self.chunks.last());
        ends.map_or((0, 0), |(first, last)| (first.first.steady, last.last.steady))
    }

    /// The steady time at a time of day, as nearly as it can be told: someone may have set the clock in between.
    #[must_use]
    pub fn steady(&self, wall: u64) -> u64 {
        let within = |chunk: &&Chunk| (chunk.first.wall..=chunk.last.wall).contains(&wall);
        let before = |chunk: &&Chunk| chunk.first.wall <= wall;
        let found = self.chunks.iter().find(within).or_else(|| self.chunks.iter().rev().find(before));
        found.map_or(self.range().0, |chunk| {
            chunk.first.steady.saturating_add(wall.saturating_sub(chunk.first.wall))
        })
    }

    /// The chunk that holds a steady time, or the first one after it.
    #[must_use]
    pub fn chunk_at(&self, steady: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.last.steady < steady)
    }

    /// Looks whether an unended recording has grown; says whether it has.
    pub fn refresh(&mut self) -> io::Result<bool> {
        if self.complete {
            return Ok(false);
        }
        let before = self.chunks.len();
        self.scan()?;
        Ok(self.chunks.len() > before || self.complete)
    }

    /// Reads a chunk from the file and checks it.
    pub fn load(&mut self, number: usize, part: Part) -> Result<Block, Damage> {
        let Some(chunk) = self.chunks.get(number).cloned() else {
            return Err(Damage { offset: self.next, what: "there is no such chunk" });
        };
        let damage = |what| Damage { offset: chunk.offset, what };
        let mut at = chunk.offset;
        let mut take = |len: u32| {
            let mut bytes = vec![0; len as usize];
            self.source.seek(SeekFrom::Start(at)).and_then(|_| self.source.read_exact(&mut bytes)).ok()?;
            at = at.saturating_add(u64::from(len));
            Some(bytes)
        };
        let gone = damage("a chunk cannot be read");
        let ours = |bytes: &[u8]| {
            let head = BlockHead::read(bytes.first_chunk()?)?;
            let same = (head.kind, head.number, head.summary, head.side, head.rows)
                == (CHUNK, chunk.number, chunk.summary_len, chunk.side.len, chunk.rows.len);
            same.then_some(())
        };
        let front = take(BLOCK_LEN as u32).ok_or_else(|| gone.clone())?;
        ours(&front).ok_or_else(|| damage("another chunk is here than the index says"))?;
        let side = take(chunk.summary_len).and_then(|_| take(chunk.side.len)).ok_or_else(|| gone.clone())?;
        let rows = match part {
            Part::Side => None,
            Part::Whole => Some(take(chunk.rows.len).ok_or(gone)?),
        };
        let sound = |bytes: &[u8], packed: Packed| crc32fast::hash(bytes) == packed.check;
        if !sound(&side, chunk.side) || rows.as_ref().is_some_and(|rows| !sound(rows, chunk.rows)) {
            return Err(damage("the checksum of a chunk is wrong"));
        }
        Ok(Block { chunk, side, rows })
    }

    /// What must be known to understand the chunks from a number on, said again: that number, `before` at most, and
    /// the frames, with which records came earlier and what was noted. `None` where it must be read from the
    /// beginning: in short recordings, and in those whose writer did not say it.
    pub fn state(&mut self, before: usize) -> Option<(usize, Block)> {
        let mut at = before.min(self.chunks.len().checked_sub(1)?);
        for _ in 0..STATE_TRIES {
            let offset = self.chunks.get(at).map(|chunk| chunk.state).filter(|offset| *offset != 0)?;
            let found = self.state_at(offset).ok().flatten().filter(|(first, _)| *first <= before);
            if found.is_some() {
                return found;
            }
            // One before it will do.
            let older = self.chunks.partition_point(|chunk| chunk.state < offset);
            at = older.min(at).checked_sub(1)?;
        }
        None
    }

    fn state_at(&mut self, offset: u64) -> io::Result<Option<(usize, Block)>> {
        let end = self.source.seek(SeekFrom::End(0))?;
        let Some((head, summary)) = self.block_at(offset, end)? else { return Ok(None) };
        let whole = offset.checked_add(head.len()).is_some_and(|after| after <= end);
        let chunk = Chunk::read(&head, offset, &summary).filter(|_| whole && head.kind == STATE);
        let Some(chunk) = chunk else { return Ok(None) };
        let mut side = vec![0; head.side as usize];
        self.source.read_exact(&mut side)?;
        let first = self.chunks.partition_point(|other| other.number < chunk.number);
        let sound = crc32fast::hash(&side) == chunk.side.check;
        Ok(sound.then_some((first, Block { chunk, side, rows: None })))
    }

    #[cfg(test)]
    pub(super) fn replace_source(&mut self, source: R) {
        self.source = source;
    }

    fn read_head(&mut self) -> Result<(), OpenError> {
        let mut front = Vec::new();
        self.source.seek(SeekFrom::Start(0))?;
        self.source.by_ref().take(HEAD_LEN as u64).read_to_end(&mut front)?;
        if !is_recording(&front) {
            return Err(OpenError::Foreign);
        }
        let mut r = crate::wire::Reader::new(front.get(MAGIC.len()..).unwrap_or_default());
        let (version, _, len, check) = (r.u16(), r.u16(), r.u32(), r.u32());
        if version > VERSION {
            return Err(OpenError::TooNew(version));
        }
        let mut fields = Vec::new();
        if len as usize <= MAX_HEAD {
            self.source.by_ref().take(u64::from(len)).read_to_end(&mut fields)?;
        }
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(front.get(..HEAD_LEN.saturating_sub(4)).unwrap_or_default());
        hasher.update(&fields);
        if front.len() == HEAD_LEN && fields.len() == len as usize && hasher.finalize() == check {
            self.next = (HEAD_LEN as u64).saturating_add(u64::from(len));
            self.head = fields;
        } else {
            self.note(0, "the head of the recording is damaged");
            self.next = front.len() as u64;
        }
        Ok(())
    }

    /// The chunks that the index tells of, if it is there and sound.
    fn read_index(&mut self) -> io::Result<Option<Vec<Chunk>>> {
        let end = self.source.seek(SeekFrom::End(0))?;
        let Some(trailer_at) = end.checked_sub(TRAILER_LEN as u64).filter(|at| *at >= self.next) else {
            return Ok(None);
        };
        let mut trailer = [0; TRAILER_LEN];
        self.source.seek(SeekFrom::Start(trailer_at))?;
        self.source.read_exact(&mut trailer)?;
        let mut r = crate::wire::Reader::new(&trailer);
        let at = r.u64();
        if r.rest() != TRAILER_MAGIC || at < self.next || at > trailer_at {
            return Ok(None);
        }
        let Some((head, entries)) = self.block_at(at, end)? else { return Ok(None) };
        if head.kind != INDEX || at.checked_add(head.len()) != Some(trailer_at) {
            return Ok(None);
        }
        let Some(chunks) = read_entries(&entries) else { return Ok(None) };
        let next = chunks.iter().skip(1).map(|chunk| chunk.offset).chain([at]);
        let apart = chunks.iter().zip(next).all(|(chunk, next)| chunk_end(chunk) <= next);
        Ok(apart.then_some(chunks))
    }

    /// The head and summary of the block at a place; `None` when no sound one is there.
    fn block_at(&mut self, at: u64, end: u64) -> io::Result<Option<(BlockHead, Vec<u8>)>> {
        let mut front = [0; BLOCK_LEN];
        if end.saturating_sub(at) < BLOCK_LEN as u64 {
            return Ok(None);
        }
        self.source.seek(SeekFrom::Start(at))?;
        self.source.read_exact(&mut front)?;
        let Some(head) = BlockHead::read(&front) else { return Ok(None) };
        let room = end.saturating_sub(at).saturating_sub(BLOCK_LEN as u64);
        if u64::from(head.summary) > room {
            return Ok(None);
        }
        let mut summary = vec![0; head.summary as usize];
        self.source.read_exact(&mut summary)?;
        let sound = BlockHead::check(&front, &summary) == head.check;
        if !sound {
            self.wasted = self.wasted.saturating_add(u64::from(head.summary));
        }
        Ok(sound.then_some((head, summary)))
    }

    /// Goes on looking for chunks where it was left off.
    fn scan(&mut self) -> io::Result<()> {
        self.look()?;
        if self.disorder {
            self.chunks.sort_by_key(|chunk| chunk.number);
            self.chunks.dedup_by_key(|chunk| chunk.number);
            self.disorder = false;
        }
        Ok(())
    }

    fn look(&mut self) -> io::Result<()> {
        let end = self.source.seek(SeekFrom::End(0))?;
        while !self.complete && self.next < end {
            let at = self.next;
            let Some((head, summary)) = self.block_at(at, end)? else {
                match self.search(at, end)? {
                    Some(found) => {
                        self.note(at, "no chunk begins here");
                        self.next = found;
                        continue;
                    }
                    // A block that is not all there yet, or rubbish up to the end.
                    None => return Ok(()),
                }
            };
            let after = at.saturating_add(head.len());
            if after > end {
                return Ok(());
            }
            self.next = after;
            match head.kind {
                CHUNK => match Chunk::read(&head, at, &summary) {
                    Some(chunk) => self.file(chunk),
                    None => self.note(at, "a chunk says things of itself that cannot be"),
                },
                INDEX => {
                    self.complete = true;
                    self.next = end;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes in a chunk; [`Recording::scan`] puts it where it belongs.
    fn file(&mut self, chunk: Chunk) {
        let last = self.chunks.last().map_or(0, |last| last.number);
        if chunk.number <= last && !self.chunks.is_empty() {
            // Up to the first of them the others are in order, and later ones are not said.
            let twice = self.chunks.binary_search_by_key(&chunk.number, |other| other.number).is_ok();
            let what = if twice { "a chunk is there twice" } else { "a chunk is out of order" };
            self.note(chunk.offset, what);
            self.disorder = true;
        } else if last.saturating_add(1) != chunk.number {
            self.note(chunk.offset, "chunks are missing before this one");
        }
        self.chunks.push(chunk);
    }

    /// The next place behind `at` where a sound block begins. What only looks like one is checked as long as that takes
    /// no more than reading the file: a crafted one could make every byte the head of a block as long as the rest.
    fn search(&mut self, at: u64, end: u64) -> io::Result<Option<u64>> {
        const STEP: usize = 64 << 10;
        let mut from = at.saturating_add(1);
        while from < end {
            let mut bytes = Vec::new();
            self.source.seek(SeekFrom::Start(from))?;
            self.source.by_ref().take(STEP as u64).read_to_end(&mut bytes)?;
            let places = bytes.windows(BLOCK_MAGIC.len()).enumerate();
            let places: Vec<u64> = places
                .filter(|(_, window)| *window == BLOCK_MAGIC)
                .map(|(place, _)| from.saturating_add(place as u64))
                .collect();
            for place in places {
                if self.wasted > end.max(WASTE) {
                    self.note(at, "no chunk begins here, and too much behind it only looks like one");
                    return Ok(None);
                }
                if self.block_at(place, end)?.is_some() {
                    return Ok(Some(place));
                }
                self.wasted = self.wasted.saturating_add(LEAST_WASTE);
            }
            // The magic may lie across the border.
            from = from.saturating_add(STEP.saturating_sub(BLOCK_MAGIC.len()) as u64);
        }
        Ok(None)
    }

    /// Keeps the first damage.
    fn note(&mut self, offset: u64, what: &'static str) {
        self.damage.get_or_insert(Damage { offset, what });
    }
}

fn chunk_end(chunk: &Chunk) -> u64 {
    let head = BlockHead {
        summary: chunk.summary_len,
        side: chunk.side.len,
        rows: chunk.rows.len,
        ..BlockHead::default()
    };
    chunk.offset.saturating_add(head.len())
}
