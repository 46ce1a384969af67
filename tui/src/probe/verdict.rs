//! What a row says, and what all rows together say of this CUPTI.

use std::fmt::{self, Write as _};

use gtop_protocol::Validity;
use gtop_protocol::cupti::{CuptiVersion, Verdict};

use super::row::{Law, Row};
use super::run::Ran;
use super::tally::Tally;
use crate::view::units::count;

/// Up to one record in so many may have been taken unfinished without anything being wrong (measured: 70 of 400,000
/// with `end < start` or zeros, on sound versions too).
const UNFINISHED: u64 = 1_000;

/// Fewer than one record in so many that are missing are no stop (measured on a sound version: 1 of 1,000,000, all
/// kinds on, 13.5.25).
const STRAY: u64 = 100_000;

/// What one row says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowVerdict {
    /// Every kernel was recorded, with times to believe.
    Sound,
    /// From some kernel on there are no records.
    Stops,
    /// From some kernel on records have no times to believe; others may be missing too.
    Zeros,
    /// Records were lost on the way, or more came than was launched.
    Unclear,
    /// Its process did not get that far.
    NotRun,
}

impl RowVerdict {
    /// The name used in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Stops => "stops",
            Self::Zeros => "zeros",
            Self::Unclear => "unclear",
            Self::NotRun => "not_run",
        }
    }
}

/// A row with what it says.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The row and what came of it.
    pub ran: Ran,
    /// What that says.
    pub verdict: RowVerdict,
    /// The verdict in words.
    pub words: String,
    /// After how many well recorded kernels it stopped.
    pub stopped_at: Option<u64>,
    /// After how many it must stop on a defective CUPTI, and whether it did so within one device buffer.
    pub law: Option<(u64, bool)>,
}

/// Judges a row.
#[must_use]
pub fn judge(ran: Ran, law: Law) -> Judged {
    let (verdict, words, stopped_at) = match &ran.done {
        Err(not_run) => (RowVerdict::NotRun, not_run.why.clone(), None),
        Ok(done) => of_counts(&ran.tally, done.launched.kernels),
    };
    let law = law.stop(&ran.row).map(|(stop, buffer)| {
        let as_said = stopped_at.is_some_and(|stopped| stopped.abs_diff(stop) <= buffer);
        (stop, as_said)
    });
    Judged { ran, verdict, words, stopped_at, law }
}

fn of_counts(tally: &Tally, launched: u64) -> (RowVerdict, String, Option<u64>) {
    let unclear = |words: String| (RowVerdict::Unclear, words, None);
    // What CUPTI delivered is known even if some of it was lost on the way here.
    let delivered = tally.kernel_records().max(tally.loss.kernel);
    let bad = tally.kernel_records() - tally.valid_kernels();
    if tally.damaged {
        return unclear("frames came damaged".to_owned());
    }
    if tally.dropped_by_cupti() > 0 {
        return unclear(format!("CUPTI dropped {} records", count(tally.dropped_by_cupti())));
    }
    if delivered > launched {
        return unclear(format!("{} more records than launches", count(delivered - launched)));
    }
    let missing = launched - delivered;
    let flood = bad > launched / UNFINISHED;
    let stray = missing > 0 && missing < launched / STRAY;
    let stopped = (missing > 0 && !stray || flood).then_some(delivered - bad);
    let but =
        |what: u64, word: &str| if what > 0 { format!("; {} {word}", count(what)) } else { String::new() };
    match (missing, flood) {
        (0, false) if tally.lost() > 0 => {
            unclear(format!("{} records were lost on the way", count(tally.lost())))
        }
        (missing, false) if missing == 0 || stray => {
            let words = format!("sound{}{}", but(bad, "taken unfinished"), but(missing, "missing"));
            (RowVerdict::Sound, words, None)
        }
        (_, false) => (RowVerdict::Stops, "records stop".to_owned(), stopped),
        (0, true) => (RowVerdict::Zeros, "times are lost".to_owned(), stopped),
        (_, true) => (RowVerdict::Zeros, "records stop, or lose their times".to_owned(), stopped),
    }
}

/// Kernels of a row without a record.
fn missing(row: &Judged) -> u64 {
    let launched = row.ran.done.as_ref().map_or(0, |done| done.launched.kernels);
    launched.saturating_sub(row.ran.tally.kernel_records().max(row.ran.tally.loss.kernel))
}

/// What all rows say together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Sound, defective, or unknown when not all rows say something and none shows the defect.
    pub verdict: Verdict,
    /// In a few sentences.
    pub text: String,
}

/// The answer of these rows.
#[must_use]
pub fn answer(rows: &[Judged]) -> Answer {
    let fails = |row: &&Judged| matches!(row.verdict, RowVerdict::Stops | RowVerdict::Zeros);
    let version = rows.iter().find_map(|row| row.ran.tally.version).map(CuptiVersion);
    let name = version.map_or_else(|| "this CUPTI".to_owned(), |version| format!("CUPTI {version}"));
    let failed: Vec<&Judged> = rows.iter().filter(fails).collect();
    let verdict = if !failed.is_empty() {
        Verdict::Defective
    } else if !rows.is_empty() && rows.iter().all(|row| row.verdict == RowVerdict::Sound) {
        Verdict::Sound
    } else {
        Verdict::Unknown
    };
    let text = match verdict {
        Verdict::Sound => format!(
            "{name} is sound on this GPU: {}, with times to believe.{}",
            match rows.iter().map(missing).sum() {
                0 => "every kernel of every row was recorded".to_owned(),
                stray => format!("all kernels of all rows but {} were recorded", count(stray)),
            },
            known(version, verdict)
        ),
        Verdict::Defective => format!(
            "{name} is defective on this GPU: {}.{}{}",
            defect(&failed),
            remedy(rows, &failed, version),
            known(version, verdict)
        ),
        Verdict::Unknown => {
            let silent = rows.iter().find(|row| row.verdict != RowVerdict::Sound);
            let why = silent.map_or_else(
                || "no row ran".to_owned(),
                |row| format!("{}: {}", Name(&row.ran.row), row.words),
            );
            format!("No answer about {name}: {why}.")
        }
    };
    Answer { verdict, text }
}

/// What was seen of the defect.
fn defect(failed: &[&Judged]) -> String {
    let mut stops: Vec<String> = Vec::new();
    for row in failed.iter().filter(|row| row.verdict == RowVerdict::Stops) {
        let stopped = count(row.stopped_at.unwrap_or_default());
        let text = match row.law {
            Some((stop, false)) => {
                format!(
                    "{stopped} at a pool limit of {} (the law says {})",
                    row.ran.row.pool_limit,
                    count(stop)
                )
            }
            _ => format!("{stopped} at a pool limit of {}", row.ran.row.pool_limit),
        };
        if !stops.contains(&text) {
            stops.push(text);
        }
    }
    let mut text = String::new();
    if failed.iter().all(|row| row.ran.row.is_uncovered()) {
        text.push_str("where a graph copies within the device or sets memory and that kind is off, ");
    }
    if !stops.is_empty() {
        let _ = write!(text, "kernel records end after {}", stops.join(" and "));
        if failed.iter().all(|row| row.law.is_some_and(|(_, as_said)| as_said)) {
            text.push_str(", as the law of limit × 100,000 slots says");
        }
    }
    if let Some(row) = failed.iter().find(|row| row.verdict == RowVerdict::Zeros) {
        let zeros = count(row.ran.tally.kernels[Validity::Zero as usize]);
        let first = row.ran.tally.first_bad.map_or("?".to_owned(), |bad| count(bad.index));
        let and = if stops.is_empty() { "" } else { "; " };
        let _ = write!(
            text,
            "{and}kernels launched beside the graph then come without times ({zeros} with start = end = 0, from \
             record {first} on)"
        );
    }
    text
}

/// What helps, as far as these rows show it.
fn remedy(rows: &[Judged], failed: &[&Judged], version: Option<CuptiVersion>) -> String {
    let helps = failed.iter().all(|row| row.ran.row.is_uncovered());
    let seen = rows.iter().any(|row| !row.ran.row.is_uncovered() && row.verdict == RowVerdict::Sound);
    let kinds = match (helps, seen) {
        (true, true) => " With that kind on from the start all records came, and so gtop arms it.",
        (true, false) => "",
        (false, _) => " It failed where that kind was on, too: do not rely on its records.",
    };
    format!("{kinds} What cures it: {}.", version.unwrap_or(CuptiVersion(130_000)).cure())
}

/// What was measured of this version before, if that is something else.
fn known(version: Option<CuptiVersion>, verdict: Verdict) -> String {
    match version.map(CuptiVersion::verdict) {
        Some(before) if before != verdict && before != Verdict::Unknown => {
            format!(" gtop's table says {}: please report this.", before.name())
        }
        Some(Verdict::Unknown) => {
            " gtop's table knows nothing of this version: please report this.".to_owned()
        }
        _ => String::new(),
    }
}

/// A row for people.
struct Name<'a>(&'a Row);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.0.load, self.0.kinds)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gtop_protocol::KindSet;
    use gtop_protocol::message::Loss;

    use super::*;
    use crate::probe::child::Done;
    use crate::probe::load::Counts;
    use crate::probe::row::Load;

    fn row(load: Load, kinds: &str, [valid, zero, inverted]: [u64; 3]) -> Judged {
        let mut tally = Tally { version: Some(130_001), ..Tally::default() };
        tally.kernels[Validity::Valid as usize] = valid;
        tally.kernels[Validity::Zero as usize] = zero;
        tally.kernels[Validity::Inverted as usize] = inverted;
        let launched = Counts { kernels: 500_000, ..Counts::default() };
        let row = Row { load, kinds: KindSet::parse(kinds).unwrap(), pool_limit: 8, turns: 500_000 };
        let done = Ok(Done { launched, ..Done::default() });
        let ran = Ran { row, device: None, driver: None, tally, done, took: Duration::ZERO };
        judge(ran, Law::default())
    }

    fn again(judged: Judged, change: impl FnOnce(&mut Tally)) -> RowVerdict {
        let mut ran = judged.ran;
        change(&mut ran.tally);
        judge(ran, Law::default()).verdict
    }

    #[test]
    fn a_few_unfinished_records_are_no_defect_and_a_lost_one_is_no_answer() {
        let good = row(Load::D2d, "safe", [500_000, 0, 0]);
        assert_eq!((good.verdict, good.stopped_at, good.law), (RowVerdict::Sound, None, None));
        let unfinished = row(Load::D2d, "safe", [499_930, 70, 0]);
        assert_eq!(
            (unfinished.verdict, unfinished.words.as_str()),
            (RowVerdict::Sound, "sound; 70 taken unfinished")
        );
        let stray = row(Load::D2dEager, "safe", [499_996, 0, 0]);
        assert_eq!((stray.verdict, stray.words.as_str()), (RowVerdict::Sound, "sound; 4 missing"));
        let all = answer(&[good, stray]);
        assert_eq!(all.verdict, Verdict::Sound);
        assert!(all.text.contains("all kernels of all rows but 4 were recorded"), "{}", all.text);
        assert_eq!(row(Load::D2dEager, "safe", [499_995, 0, 0]).verdict, RowVerdict::Stops);
        let short = || row(Load::D2d, "kernel", [400_000, 0, 0]);
        let lost =
            |kernel| move |tally: &mut Tally| tally.loss = Loss { kernel, dropped: 1, ..Loss::default() };
        assert_eq!(again(short(), lost(500_000)), RowVerdict::Unclear, "they came as far as the shim");
        assert_eq!(again(short(), lost(400_001)), RowVerdict::Stops, "they never came");
        let dropped = |tally: &mut Tally| tally.loss = Loss { cupti_dropped: 1, ..Loss::default() };
        assert_eq!(again(short(), dropped), RowVerdict::Unclear);
        assert_eq!(again(short(), |tally| tally.damaged = true), RowVerdict::Unclear);
        assert_eq!(row(Load::D2d, "kernel", [500_001, 0, 0]).verdict, RowVerdict::Unclear);
    }

    #[test]
    fn records_that_stop_are_held_against_the_law() {
        let stops = row(Load::D2d, "kernel", [399_999, 0, 1]);
        assert_eq!(stops.verdict, RowVerdict::Stops);
        assert_eq!((stops.stopped_at, stops.law), (Some(399_999), Some((400_000, true))));
        let early = row(Load::D2d, "kernel", [100_000, 0, 0]);
        assert_eq!(early.law, Some((400_000, false)));
        assert!(answer(&[early]).text.contains("100,000 at a pool limit of 8 (the law says 400,000)"));
        let zeros = row(Load::D2dEager, "kernel", [266_000, 234_000, 0]);
        assert_eq!((zeros.verdict, zeros.stopped_at), (RowVerdict::Zeros, Some(266_000)));
        let text = answer(&[zeros]).text;
        assert!(
            text.contains("234,000 with start = end = 0") && !text.contains("kernel records end"),
            "{text}"
        );
    }

    #[test]
    fn the_answer_takes_all_rows() {
        let good = || row(Load::D2d, "safe", [500_000, 0, 0]);
        let bad = || row(Load::D2d, "kernel", [400_000, 0, 0]);
        assert_eq!(answer(&[]).verdict, Verdict::Unknown);
        assert_eq!(answer(&[good(), bad()]).verdict, Verdict::Defective);
        let mut not_run = good();
        not_run.ran.done = Err("it died".to_owned().into());
        let not_run = judge(not_run.ran, Law::default());
        let unknown = answer(&[good(), not_run.clone()]);
        assert_eq!(unknown.verdict, Verdict::Unknown);
        assert!(unknown.text.contains("d2d with kernel memcpy memset: it died"), "{}", unknown.text);
        assert_eq!(answer(&[not_run, bad()]).verdict, Verdict::Defective);
        let worse = answer(&[row(Load::D2d, "safe", [400_000, 0, 0])]);
        assert!(worse.text.contains("do not rely on its records"), "{}", worse.text);
    }
}
