//! What came of one row's process, counted as it comes: records by family and class, and the shim's last word.

use gtop_protocol::Validity;
use gtop_protocol::frame::{Frame, FrameKind, RecordSizes, Run, Runs};
use gtop_protocol::message::{self, Hello, Loss, Pool, Reason, Reply, State, StateCode, pools};
use gtop_protocol::record::{self, Copy, Family, Kernel, Memset};

use crate::model::names::safe;

/// Records by class, indexed by [`Validity`] wire value.
pub(super) type ByClass = [u64; Validity::ALL.len()];

/// A kernel record whose timestamps cannot be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bad {
    /// Which kernel record it was, counted from 1.
    pub index: u64,
    /// Its start as delivered.
    pub start: u64,
    /// Its end as delivered.
    pub end: u64,
    /// Its class.
    pub class: Validity,
}

/// Counts of one process.
#[derive(Clone, Debug)]
pub struct Tally {
    pub(super) sizes: RecordSizes,
    /// Kernel records by class.
    pub kernels: ByClass,
    /// Copy records by class.
    pub copies: ByClass,
    /// Memory-set records by class.
    pub memsets: ByClass,
    /// Records of other kinds.
    pub others: u64,
    /// The first kernel record that is not valid.
    pub first_bad: Option<Bad>,
    /// `cuptiGetVersion`, once CUPTI was called.
    pub version: Option<u32>,
    /// The file CUPTI was mapped from.
    pub path: String,
    /// The shim's state.
    pub state: StateCode,
    /// Why, in words, when that needs saying.
    pub reason: Option<String>,
    /// Connections that watch.
    pub watchers: u32,
    /// The shim's account of lost records.
    pub loss: Loss,
    /// The device buffer pools.
    pub pools: Vec<Pool>,
    /// The last request that was answered.
    pub answered: u64,
    /// Whether a frame made no sense.
    pub damaged: bool,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            sizes: RecordSizes([0; 4]),
            kernels: [0; _],
            copies: [0; _],
            memsets: [0; _],
            others: 0,
            first_bad: None,
            version: None,
            path: String::new(),
            state: StateCode::Loaded,
            reason: None,
            watchers: 0,
            loss: Loss::default(),
            pools: Vec::new(),
            answered: 0,
            damaged: false,
        }
    }
}

impl Tally {
    /// Takes in whole frames.
    pub fn take(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Ok(Some((frame, tail))) = Frame::split(rest) {
            rest = tail;
            if self.frame(&frame).is_err() {
                self.damaged = true;
            }
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), message::Damaged> {
        match frame.kind() {
            Some(FrameKind::Records) => {
                let mut runs = Runs::new(frame.body, self.sizes);
                runs.by_ref().for_each(|run| self.run(run));
                self.damaged |= runs.is_bad();
            }
            Some(FrameKind::Hello) => {
                let hello = Hello::read(frame.body)?;
                self.sizes = hello.sizes;
                self.version = hello.fields.cupti_version.and_then(|version| u32::try_from(version).ok());
                self.path = safe(hello.fields.cupti_path);
            }
            Some(FrameKind::State) => {
                let state = State::read(frame.body)?;
                self.state = StateCode::from_wire(state.state).unwrap_or(StateCode::Unavailable);
                let words = Reason::from_wire(state.reason).and_then(Reason::text);
                self.reason = words.map(|words| match safe(state.detail) {
                    detail if detail.is_empty() => words.to_owned(),
                    detail => format!("{words}: {detail}"),
                });
                self.watchers = state.watchers;
            }
            Some(FrameKind::Loss) => self.loss = Loss::read(frame.body)?,
            Some(FrameKind::Pools) => self.pools = pools::read(frame.body).collect(),
            Some(FrameKind::Reply) => self.answered = self.answered.max(Reply::read(frame.body)?.request),
            _ => {}
        }
        Ok(())
    }

    fn run(&mut self, run: Run<'_>) {
        for bytes in run.records() {
            match run.family() {
                Some(Family::Kernel) => self.kernel(&record::read(bytes)),
                Some(Family::Copy) => self.copies[class(record::read::<Copy>(bytes).validity) as usize] += 1,
                Some(Family::Memset) => {
                    self.memsets[class(record::read::<Memset>(bytes).validity) as usize] += 1;
                }
                Some(Family::Other) | None => self.others += 1,
            }
        }
    }

    fn kernel(&mut self, kernel: &Kernel) {
        let class = class(kernel.validity);
        self.kernels[class as usize] += 1;
        if !class.is_valid() && self.first_bad.is_none() {
            let (index, start, end) = (self.kernel_records(), kernel.start.get(), kernel.end.get());
            self.first_bad = Some(Bad { index, start, end, class });
        }
    }

    /// Kernel records of any class.
    #[must_use]
    pub fn kernel_records(&self) -> u64 {
        self.kernels.iter().sum()
    }

    /// Records of any kind and class.
    #[must_use]
    pub fn records(&self) -> u64 {
        let families = self.kernels.iter().chain(&self.copies).chain(&self.memsets);
        families.sum::<u64>() + self.others
    }

    /// Kernel records that can be believed.
    #[must_use]
    pub const fn valid_kernels(&self) -> u64 {
        self.kernels[Validity::Valid as usize]
    }

    /// Records that CUPTI says it dropped.
    #[must_use]
    pub const fn dropped_by_cupti(&self) -> u64 {
        self.loss.cupti_dropped.saturating_sub(self.loss.joined_cupti_dropped)
    }

    /// Records that CUPTI delivered and that did not come here.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        let loss = &self.loss;
        let queue = loss.queue_full.saturating_sub(loss.joined_queue_full);
        let unknown = loss.unknown_kind.saturating_sub(loss.joined_unknown_kind);
        queue.saturating_add(unknown).saturating_add(loss.dropped)
    }

    /// Whether everything the shim has counted came here or is lost for a known cause.
    #[must_use]
    pub fn balances(&self) -> bool {
        let delivered = self.loss.walked.saturating_sub(self.loss.joined_walked);
        delivered == self.records().saturating_add(self.lost())
    }
}

/// The class of a record; one that this version does not know is at least not valid.
fn class(wire: u8) -> Validity {
    Validity::from_wire(wire).unwrap_or(Validity::Sentinel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gtop_protocol::frame::write_frame;
    use gtop_protocol::message::HelloFields;
    use gtop_protocol::wire::{Full, Writer};
    use zerocopy::IntoBytes;

    fn frame(kind: FrameKind, body: impl FnOnce(&mut Writer<'_>) -> Result<(), Full>) -> Vec<u8> {
        let mut buf = vec![0; 4096];
        let len = write_frame(&mut buf, kind, 1, body).unwrap();
        buf.truncate(len);
        buf
    }

    fn kernels(classes: &[Validity]) -> Vec<u8> {
        frame(FrameKind::Records, |w| {
            w.bytes(&[Family::Kernel as u8, 0, 0, 0])?;
            w.u32(classes.len() as u32)?;
            for (i, class) in classes.iter().enumerate() {
                let start = (i as u64 + 100).into();
                w.bytes(Kernel { validity: *class as u8, start, ..Kernel::default() }.as_bytes())?;
            }
            Ok(())
        })
    }

    #[test]
    fn records_are_counted_by_class_and_the_first_bad_one_is_kept() {
        use Validity::{Inverted, Valid, Zero};
        let mut tally = Tally::default();
        let fields =
            HelloFields { cupti_version: Some(130_001), cupti_path: b"/lib/x", ..Default::default() };
        tally.take(&frame(FrameKind::Hello, |w| Hello::new(fields).write(w)));
        tally.take(&[kernels(&[Valid, Valid]), kernels(&[Valid, Inverted, Zero])].concat());
        assert_eq!((tally.version, tally.path.as_str()), (Some(130_001), "/lib/x"));
        assert_eq!((tally.kernel_records(), tally.valid_kernels(), tally.records()), (5, 3, 5));
        assert_eq!(tally.first_bad, Some(Bad { index: 4, start: 101, end: 0, class: Inverted }));
        let loss = Loss { walked: 9, joined_walked: 2, queue_full: 1, dropped: 1, ..Loss::default() };
        tally.take(&frame(FrameKind::Loss, |w| loss.write(w)));
        assert!(tally.balances() && tally.lost() == 2 && !tally.damaged);
        tally.take(&kernels(&[Valid]));
        assert!(!tally.balances());
    }

    #[test]
    fn damage_is_noticed() {
        let mut tally = Tally::default();
        tally.take(&kernels(&[Validity::Valid]));
        assert!(tally.damaged, "records before the hello that says how long they are");
    }

    #[test]
    fn a_reason_is_put_into_words() {
        let mut tally = Tally::default();
        let state = State {
            state: StateCode::Unavailable as u8,
            reason: Reason::NoCupti as u16,
            detail: b"tried /x",
            ..State::default()
        };
        tally.take(&frame(FrameKind::State, |w| state.write(w)));
        assert_eq!(tally.state, StateCode::Unavailable);
        assert!(tally.reason.unwrap().ends_with("found: tried /x"));
    }
}
