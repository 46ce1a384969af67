//! Whose numbering the process id of `--attach` is of: this machine's, or that inside of a container.

use super::{Failure, NO_TARGET};
use crate::system::namespace;

/// The pid namespace that `--attach` is meant in.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Within {
    /// The PID of --attach is the one it has inside of the pid namespace of this process, such as a container's first.
    #[arg(long, value_name = "PID", value_parser = super::pid, allow_negative_numbers = true, requires = "attach")]
    ns: Option<u32>,
}

impl Within {
    /// The process id as this machine numbers it.
    pub fn pid(self, pid: u32) -> Result<u32, Failure> {
        let Some(of) = self.ns else { return Ok(pid) };
        namespace::outer_pid(of, pid).map_err(|error| Failure::new(NO_TARGET, error))
    }

    /// The same, where a process is named at all.
    pub fn of(self, pid: Option<u32>) -> Result<Option<u32>, Failure> {
        pid.map(|pid| self.pid(pid)).transpose()
    }
}
