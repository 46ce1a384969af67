//! Matching the processes gtop watches with those NVML lists: across pid namespaces one process has several
//! numbers, and which of them NVML gives differs between drivers, even between two calls of one driver.

use std::fmt;

use super::sample::ProcessSample;

/// A process gtop watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watched {
    /// Its pid as this machine numbers it.
    pub pid: u32,
    /// Every pid it is known by, one for each namespace (`NSpid` of `/proc/PID/status`).
    pub pids: Vec<u32>,
    /// Its name.
    pub name: String,
}

/// One line of a list of processes on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The pid as this machine numbers it, as far as known.
    pub pid: u32,
    /// The pid NVML gives, when that is another.
    pub nvml_pid: Option<u32>,
    /// Its name.
    pub name: String,
    /// Bytes in use; not found is unknown, never 0.
    pub used: Option<u64>,
    /// Share of the SMs' time, percent.
    pub sm_percent: Option<u64>,
    /// Whether gtop watches it.
    pub watched: bool,
}

/// The watched processes, found or not, and then everybody else NVML lists.
#[must_use]
pub fn join(watched: &[Watched], listed: &[ProcessSample]) -> Vec<Row> {
    let is = |watched: &Watched, pid: u32| watched.pid == pid || watched.pids.contains(&pid);
    let ours = watched.iter().map(|watched| {
        let mut found = listed.iter().filter(|sample| is(watched, sample.pid)).peekable();
        let nvml_pid = found.peek().map(|sample| sample.pid).filter(|pid| *pid != watched.pid);
        let start =
            Row { pid: watched.pid, nvml_pid, name: watched.name.clone(), watched: true, ..Row::default() };
        // One process can be listed twice: by its two pids, or for compute and graphics.
        found.fold(start, |row, sample| Row {
            used: row.used.max(sample.used),
            sm_percent: row.sm_percent.max(sample.sm_percent),
            ..row
        })
    });
    let others = listed.iter().filter(|sample| !watched.iter().any(|watched| is(watched, sample.pid)));
    let others = others.map(|sample| Row {
        pid: sample.pid,
        name: sample.name.clone(),
        used: sample.used,
        sm_percent: sample.sm_percent,
        ..Row::default()
    });
    ours.chain(others).collect()
}

/// A sum that admits what it lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// What is known, bytes.
    pub bytes: u64,
    /// Terms that are not.
    pub unknown: usize,
}

/// The memory of all rows together.
#[must_use]
pub fn sum<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Sum {
    rows.into_iter().fold(Sum::default(), |sum, row| match row.used {
        Some(used) => Sum { bytes: sum.bytes.saturating_add(used), ..sum },
        None => Sum { unknown: sum.unknown + 1, ..sum },
    })
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} GiB", self.bytes as f64 / f64::from(1 << 30))?;
        if self.unknown > 0 { f.write_str(" + unknown") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB_59_97: u64 = 64_392_297_349;

    fn listed(pid: u32, used: Option<u64>) -> ProcessSample {
        ProcessSample { pid, used, ..Default::default() }
    }

    fn watched(pid: u32, pids: &[u32]) -> Watched {
        Watched { pid, pids: pids.to_vec(), name: "EngineCore".into() }
    }

    #[test]
    fn a_process_not_found_is_unknown_and_marks_the_sum() {
        let rows = join(&[watched(42, &[42])], &[listed(546_113, Some(GIB_59_97))]);
        assert_eq!((rows.len(), rows[0].used, rows[0].watched, rows[1].watched), (2, None, true, false));
        assert_eq!(sum(&rows).to_string(), "59.97 GiB + unknown");
    }

    #[test]
    fn the_map_of_namespaces_finds_it() {
        let rows = join(&[watched(42, &[546_113, 42])], &[listed(546_113, Some(GIB_59_97))]);
        assert_eq!((rows.len(), rows[0].used, rows[0].nvml_pid), (1, Some(GIB_59_97), Some(546_113)));
        assert_eq!(sum(&rows).to_string(), "59.97 GiB");
    }

    #[test]
    fn two_numbers_of_one_process_are_one_row() {
        let memory = ProcessSample { pid: 324, used: Some(7), ..Default::default() };
        let busy = ProcessSample { pid: 645_400, sm_percent: Some(93), ..Default::default() };
        let rows = join(&[watched(645_400, &[645_400, 324])], &[memory, busy]);
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].pid, rows[0].nvml_pid), (645_400, Some(324)));
        assert_eq!((rows[0].used, rows[0].sm_percent), (Some(7), Some(93)));
    }

    #[test]
    fn processes_of_a_shared_memory_are_summed_once() {
        let mib = |n: u64| Some(n << 20);
        let rows = join(&[watched(1, &[1])], &[listed(1, mib(100)), listed(2, mib(50)), listed(3, mib(25))]);
        assert_eq!(sum(&rows), Sum { bytes: 175 << 20, unknown: 0 });
    }
}
