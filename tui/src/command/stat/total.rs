//! What several processes come to together: a row each, and the sum of what is known.

use std::io::{self, Write};

use gtop_protocol::Validity;
use schemars::JsonSchema;
use serde::Serialize;

use crate::model::snapshot::{Process, Snapshot};
use crate::view::units::and_more;

/// The sum over all processes. What is not known is in no sum, and counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Total {
    /// Processes that were watched.
    processes: usize,
    /// Processes of which nothing could be seen at any time, and which are in no sum of records.
    unseen: usize,
    /// Records walked out of CUPTI's buffers; null, as the next four are, where nothing of any process could be seen.
    delivered: Option<u64>,
    /// Records that arrived here.
    shown: Option<u64>,
    /// Records that did not, whatever lost them.
    lost: Option<u64>,
    /// Bytes of buffers that could not be read, with an unknown number of records.
    unread_bytes: Option<u64>,
    /// Records whose timestamps are bad.
    invalid: Option<u64>,
    /// Of those processes whose memory is known.
    gpu_memory_bytes: Option<u64>,
    /// Processes whose memory, or a part of it, is not.
    gpu_memory_unknown: usize,
}

impl Total {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        snapshot.processes.iter().fold(Self::default(), |sum, process| {
            let memory = process.memory();
            let records = &process.records;
            let of_seen = |count: u64| (!process.unseen).then_some(count);
            Self {
                processes: sum.processes + 1,
                unseen: sum.unseen + usize::from(process.unseen),
                delivered: known(sum.delivered, of_seen(records.delivered)),
                shown: known(sum.shown, of_seen(records.shown)),
                lost: known(sum.lost, of_seen(records.lost())),
                unread_bytes: known(sum.unread_bytes, of_seen(records.unread_bytes)),
                invalid: known(sum.invalid, of_seen(invalid(process))),
                gpu_memory_bytes: known(sum.gpu_memory_bytes, memory),
                gpu_memory_unknown: sum.gpu_memory_unknown + usize::from(memory.is_none()),
            }
        })
    }

    /// The memory for people.
    fn memory(&self) -> String {
        partly(self.gpu_memory_bytes.map(mebibytes), self.gpu_memory_unknown)
    }

    /// A count of records for people.
    fn count(&self, count: Option<u64>) -> String {
        partly(count.map(|count| count.to_string()), self.unseen)
    }
}

/// A sum of what is known.
fn known(sum: Option<u64>, one: Option<u64>) -> Option<u64> {
    match (sum, one) {
        (None, None) => None,
        (sum, one) => Some(sum.unwrap_or(0).saturating_add(one.unwrap_or(0))),
    }
}

/// What is known of a sum, and that there is more.
fn partly(known: Option<String>, unknown: usize) -> String {
    match known {
        None => "?".to_owned(),
        Some(all) if unknown == 0 => all,
        Some(some) => format!("{some} + ?"),
    }
}

fn invalid(process: &Process) -> u64 {
    let classes = Validity::ALL.into_iter().filter(|class| !class.is_valid());
    classes.map(|class| process.validity.total[class as usize]).sum()
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Writes a row for each process and one for all; nothing where there is but one.
pub(super) fn write(snapshot: &Snapshot, out: &mut impl Write) -> io::Result<()> {
    if snapshot.processes.len() < 2 {
        return Ok(());
    }
    writeln!(out, "\n     pid  state           records      lost   invalid       GPU memory  process")?;
    let mut row =
        |pid: &str, state: &str, [records, lost, invalid]: [String; 3], memory: &str, name: &str| {
            writeln!(out, "{pid:>8}  {state:<11} {records:>11} {lost:>9} {invalid:>9} {memory:>16}  {name}")
        };
    for process in &snapshot.processes {
        let records = &process.records;
        let lost = format!("{}{}", records.lost(), and_more(process.misses_some()));
        let counts = if process.unseen {
            ["?", "?", "?"].map(str::to_owned)
        } else {
            [records.shown.to_string(), lost, invalid(process).to_string()]
        };
        let memory = process.memory().map_or("?".to_owned(), mebibytes);
        let state = if process.heard.state { process.state.name() } else { "?" };
        row(&process.identity.pid.to_string(), state, counts, &memory, &process.identity.name)?;
    }
    let total = Total::of(snapshot);
    let lost = format!(
        "{}{}",
        total.count(total.lost),
        and_more(snapshot.processes.iter().any(Process::misses_some))
    );
    let counts = [total.count(total.shown), lost, total.count(total.invalid)];
    row("all", "", counts, &total.memory(), &format!("{} processes", total.processes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::{Identity, ProcessMemory};
    use std::sync::Arc;

    fn snapshot(processes: u32) -> Snapshot {
        let process = |pid: u32| {
            let identity = Identity { pid, name: "worker".into(), ..Identity::default() };
            let mut process = Process { identity: Arc::new(identity), ..Process::default() };
            process.records.delivered = 1000;
            process.records.shown = 990;
            process.records.lost_slow_viewer = 10;
            process.validity.total[Validity::Zero as usize] = 3;
            // One in four is not known to NVML.
            let used = (!pid.is_multiple_of(4)).then_some(1 << 30);
            process.gpu_memory = vec![ProcessMemory { pid, used, ..ProcessMemory::default() }];
            process
        };
        Snapshot { processes: (1..=processes).map(process).collect(), ..Snapshot::default() }
    }

    fn text(snapshot: &Snapshot) -> String {
        let mut out = Vec::new();
        write(snapshot, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn two_hundred_and_eight_workers_are_a_row_each_and_one_for_all() {
        let snapshot = snapshot(208);
        let total = Total::of(&snapshot);
        assert_eq!(
            (total.processes, total.delivered, total.shown, total.lost),
            (208, Some(208_000), Some(205_920), Some(2080))
        );
        assert_eq!((total.invalid, total.gpu_memory_bytes), (Some(624), Some(156 << 30)));
        assert_eq!(total.gpu_memory_unknown, 52, "what is unknown is no zero");
        let text = text(&snapshot);
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), 209);
        assert!(lines[3].contains("       4") && lines[3].contains(" ? "), "{}", lines[3]);
        assert!(lines[208].contains("205920") && lines[208].contains("159744.0 MiB + ?"), "{}", lines[208]);
        let ends: Vec<Option<usize>> = lines.iter().map(|line| line.find("  worker")).collect();
        assert!(ends[..208].iter().all(|end| *end == ends[0]), "columns stand below each other");
    }

    #[test]
    fn one_process_needs_no_sum_and_nothing_known_is_no_zero() {
        assert_eq!(text(&snapshot(1)), "");
        let mut unknown = snapshot(3);
        unknown.processes.iter_mut().for_each(|process| process.gpu_memory.clear());
        let total = Total::of(&unknown);
        assert_eq!((total.gpu_memory_bytes, total.gpu_memory_unknown), (None, 3));
        assert!(text(&unknown).lines().last().unwrap().contains(" ? "));
    }

    #[test]
    fn a_process_that_could_not_be_seen_is_in_no_sum_of_records() {
        let mut some = snapshot(3);
        some.processes[1].unseen = true;
        let total = Total::of(&some);
        assert_eq!((total.unseen, total.delivered, total.lost), (1, Some(2000), Some(20)));
        let text = text(&some);
        let unseen: Vec<&str> = text.lines().nth(3).unwrap().split_whitespace().collect();
        assert_eq!(unseen[2..5], ["?", "?", "?"], "{text}");
        assert!(text.lines().last().unwrap().contains(" 1980 + ? "), "{text}");
        some.processes.iter_mut().for_each(|process| process.unseen = true);
        let total = Total::of(&some);
        assert_eq!((total.delivered, total.shown, total.invalid), (None, None, None));
    }
}
