//! A row's process: says when it is ready, works when it is told to, says what it did, and stays until it is told to
//! go. On a GPU it is this program once more, under the shim.

use std::ffi::OsString;
use std::io::{self, BufRead, Read, Write};
use std::process::ExitCode;

use nix::sys::{prctl, signal::Signal};
use serde::{Deserialize, Serialize};

use super::load::{self, Counts, Device, Work};
use super::row::Load;

/// The hidden command of a row's process: `__probe LOAD TURNS`.
pub const SUBCOMMAND: &str = "__probe";

/// How a line of the child begins; what else it or its libraries print is passed over.
const MARK: &str = "gtop-probe ";

/// What a row's process says, a line each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Said {
    /// The graph is made and nothing was launched yet.
    Ready {
        /// The device's name.
        device: String,
        /// The CUDA version the driver supports, 13000 for 13.0.
        driver: i32,
    },
    /// Everything launched has ended.
    Done(Done),
    /// It cannot work.
    Failed {
        /// Why.
        why: String,
        /// Whether nothing is wrong but that the machine has no GPU.
        no_gpu: bool,
    },
}

/// What a row's process did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What it launched.
    pub launched: Counts,
    /// Device memory in use after the first turn, bytes, whoever uses it.
    pub memory_before: u64,
    /// … and after the last.
    pub memory_after: u64,
}

impl Said {
    /// The message in a line, if it is one.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        serde_json::from_str(line.strip_prefix(MARK)?).ok()
    }

    /// Says it on standard output.
    pub fn say(&self) -> io::Result<()> {
        let mut out = io::stdout().lock();
        writeln!(out, "{MARK}{}", serde_json::to_string(self)?)?;
        out.flush()
    }
}

/// Waits for the word, works, says what was done, and stays until standard input ends, so that nothing of the
/// process goes before it was looked at.
pub fn serve<E>(work: impl FnOnce() -> Result<Done, E>) -> Result<(), E>
where
    E: From<io::Error>,
{
    let mut input = io::stdin().lock();
    if input.read_line(&mut String::new())? == 0 {
        return Ok(());
    }
    Said::Done(work()?).say()?;
    input.read_to_end(&mut Vec::new())?;
    Ok(())
}

/// A row's process on a GPU.
#[must_use]
pub fn child_main(args: &[OsString]) -> ExitCode {
    let arguments = match args {
        [load, turns] => load.to_str().and_then(|load| load.parse().ok()).zip(turns.to_str()),
        _ => None,
    };
    let Some((load, Ok(turns))) = arguments.map(|(load, turns)| (load, turns.parse())) else {
        return ExitCode::from(2);
    };
    match run(load, turns) {
        Ok(()) => ExitCode::SUCCESS,
        Err(trouble) => {
            let no_gpu = matches!(&trouble, Trouble::Gpu(failure) if failure.is_absence());
            let _ = Said::Failed { why: trouble.to_string(), no_gpu }.say();
            ExitCode::FAILURE
        }
    }
}

/// Why a row's process cannot work.
#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{0}")]
    Gpu(load::Failure),
    #[error("{0}")]
    System(#[from] io::Error),
}

impl From<load::Failure> for Trouble {
    fn from(failure: load::Failure) -> Self {
        Self::Gpu(failure)
    }
}

fn run(load: Load, turns: u64) -> Result<(), Trouble> {
    // It must not outlive the probe, whatever becomes of that.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from)?;
    let device = Device::open()?;
    let plan = load.plan();
    let mut work = Work::new(&device, &plan);
    work.instantiate()?;
    Said::Ready { device: device.name.clone(), driver: device.driver }.say()?;
    serve(|| -> Result<Done, Trouble> {
        // The first turn makes the driver allocate what it needs for all of them.
        work.batch(turns.min(1))?;
        let memory_before = used(&device)?;
        let mut left = turns.saturating_sub(1);
        while left > 0 {
            let batch = plan.batch.min(left);
            work.batch(batch)?;
            left -= batch;
        }
        Ok(Done { launched: work.counts, memory_before, memory_after: used(&device)? })
    })?;
    drop(work);
    device.close()?;
    Ok(())
}

fn used(device: &Device) -> Result<u64, load::Failure> {
    let (free, total) = device.memory()?;
    Ok(total.saturating_sub(free))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_and_what_else_is_printed_is_not() {
        let said = [
            Said::Ready { device: "NVIDIA \"H200\"".into(), driver: 13000 },
            Said::Done(Done { launched: Counts { kernels: 5, ..Counts::default() }, ..Done::default() }),
            Said::Failed { why: "no GPU".into(), no_gpu: true },
        ];
        for said in said {
            let line = format!("{MARK}{}", serde_json::to_string(&said).unwrap());
            assert_eq!(Said::read(&line), Some(said));
        }
        for other in ["", "running 1 test", "gtop-probe", "gtop-probe {\"Soon\":1}", " gtop-probe {}"] {
            assert_eq!(Said::read(other), None, "{other}");
        }
    }
}
