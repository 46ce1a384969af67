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
    /// Records walked out of CUPTI's buffers.
    delivered: u64,
    /// Records that arrived here.
    shown: u64,
    /// Records that did not, whatever lost them.
    lost: u64,
    /// Bytes of buffers that could not be read, with an unknown number of records.
    unread_bytes: u64,
    /// Records whose timestamps are bad.
    invalid: u64,
    /// Of those processes whose memory is known.
    gpu_memory_bytes: Option<u64>,
    /// Processes whose memory, or a part of it, is not.
    gpu_memory_unknown: usize,
}

impl Total {
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        snapshot.processes.iter().fold(Self::default(), |sum, process| {
            let memory = process.memory();
            Self {
                processes: sum.processes + 1,
                delivered: sum.delivered + process.records.delivered,
                shown: sum.shown + process.records.shown,
                lost: sum.lost + process.records.lost(),
                unread_bytes: sum.unread_bytes.saturating_add(process.records.unread_bytes),
                invalid: sum.invalid + invalid(process),
                gpu_memory_bytes: match (sum.gpu_memory_bytes, memory) {
                    (None, None) => None,
                    (before, now) => Some(before.unwrap_or(0) + now.unwrap_or(0)),
                },
                gpu_memory_unknown: sum.gpu_memory_unknown + usize::from(memory.is_none()),
            }
        })
    }

    /// The memory for people: what is known, and that there is more.
    fn memory(&self) -> String {
        match (self.gpu_memory_bytes, self.gpu_memory_unknown) {
            (None, _) => "?".to_owned(),
            (Some(bytes), 0) => mebibytes(bytes),
            (Some(bytes), _) => format!("{} + ?", mebibytes(bytes)),
        }
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
        |pid: &str, state: &str, (records, lost, invalid): (u64, String, u64), memory: &str, name: &str| {
            writeln!(out, "{pid:>8}  {state:<11} {records:>11} {lost:>9} {invalid:>9} {memory:>16}  {name}")
        };
    for process in &snapshot.processes {
        let lost = format!("{}{}", process.records.lost(), and_more(process.records.unread_bytes));
        let counts = (process.records.shown, lost, invalid(process));
        let memory = process.memory().map_or("?".to_owned(), mebibytes);
        let state = if process.heard.state { process.state.name() } else { "?" };
        row(&process.identity.pid.to_string(), state, counts, &memory, &process.identity.name)?;
    }
    let total = Total::of(snapshot);
    let all = format!("{} processes", total.processes);
    row(
        "all",
        "",
        (total.shown, format!("{}{}", total.lost, and_more(total.unread_bytes)), total.invalid),
        &total.memory(),
        &all,
    )
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
            (208, 208_000, 205_920, 2080)
        );
        assert_eq!((total.invalid, total.gpu_memory_bytes), (624, Some(156 << 30)));
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
}
