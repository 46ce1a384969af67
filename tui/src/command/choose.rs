//! `gtop` alone: choose among the GPU processes of this machine.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::unistd::{Uid, User};
use tokio::sync::watch;

use super::attach::{self, Args};
use super::{Failure, NO_TARGET, Outcome, block_on};
use crate::model::names::safe;
use crate::system::attach::{Target, machine};
use crate::system::foreground::ends_by;
use crate::system::nvml::{self, ProcessSample, Watched};
use crate::system::process::Process;
use crate::view::{Candidate, Choice, choose};

/// How often to look.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long to wait for NVML's first answer before a list is printed without it.
const PATIENCE: Duration = Duration::from_secs(2);

/// Lets the person choose and shows the process; without a terminal prints the list.
pub fn run(args: &Args) -> Outcome {
    let devices = nvml::Client::start(nvml::Options::default())?;
    if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
        return print(&devices);
    }
    let (publish, rows) = watch::channel(None);
    let may_inject = args.may_inject()?;
    let look = move || {
        while !publish.is_closed() {
            let mut rows = candidates(&devices.latest());
            for row in &mut rows {
                row.inject &= may_inject;
            }
            publish.send_replace(Some(Arc::from(rows)));
            thread::sleep(LOOK_EVERY);
        }
    };
    thread::Builder::new().name("gtop-look".into()).spawn(look)?;
    let theme = args.theme()?;
    loop {
        match block_on(choose(rows.clone(), theme))?.map_err(|error| Failure::new(NO_TARGET, error))? {
            Choice::Watch(pid) => {
                // Whoever does not want the shim put in there may want another process.
                if let Some(code) = attach::view(pid, args)? {
                    return Ok(code);
                }
            }
            Choice::Leave => return Ok(ExitCode::SUCCESS),
            Choice::Signal(signal) => return Ok(ExitCode::from(ends_by(signal))),
        }
    }
}

fn print(devices: &nvml::Client) -> Outcome {
    let mut samples = devices.subscribe();
    let answered = async {
        let answer = samples.wait_for(|samples| samples.status != nvml::Status::Starting);
        let _ = tokio::time::timeout(PATIENCE, answer).await;
    };
    block_on(answered)?;
    let rows = candidates(&devices.latest());
    if rows.is_empty() {
        return Err(Failure::new(NO_TARGET, "no process here uses a GPU; start one with `gtop run -- CMD`"));
    }
    let mut out = io::stdout().lock();
    for row in rows {
        let memory = row.memory.map_or("?".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        let watch = row.obstacle.map_or("yes".to_owned(), |(word, why)| format!("{word}: {why}"));
        writeln!(out, "{}\t{}\t{memory}\t{}\t{watch}", row.pid, row.user, row.name)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every process that has a shim, uses a GPU, or is said to by NVML; those that can be watched first.
fn candidates(devices: &nvml::Snapshot) -> Vec<Candidate> {
    let listed: Vec<&ProcessSample> = devices.devices.iter().flat_map(|device| &device.processes).collect();
    let mut targets = machine();
    for sample in &listed {
        // Of other users' processes NVML may know more than we can see.
        let known =
            targets.iter().any(|t| t.process.pid == sample.pid || t.process.pids.contains(&sample.pid));
        if !known && let Ok(process) = Process::read(sample.pid) {
            targets.push(Target::of(process));
        }
    }
    let mut rows: Vec<Candidate> = targets.iter().map(|target| candidate(target, &listed)).collect();
    rows.sort_by_key(|row| (row.obstacle.is_some(), std::cmp::Reverse(row.memory), row.pid));
    rows
}

fn candidate(target: &Target, listed: &[&ProcessSample]) -> Candidate {
    let process = &target.process;
    let watched = Watched { pid: process.pid, pids: process.pids.clone(), name: process.name.clone() };
    // A process may be on several devices; what is unknown on one is unknown in all.
    let own = listed.iter().filter(|sample| watched.pid == sample.pid || watched.pids.contains(&sample.pid));
    let mut memory: Vec<Option<u64>> = own.map(|sample| sample.used).collect();
    let memory = if memory.is_empty() { None } else { memory.drain(..).sum() };
    let uid = Uid::from_raw(process.uid);
    let user =
        User::from_uid(uid).ok().flatten().map_or_else(|| uid.to_string(), |user| safe(user.name.as_bytes()));
    let obstacle = target.reach.as_ref().err().map(|missing| (missing.short(), missing.with_advice()));
    Candidate {
        pid: process.pid,
        user,
        name: process.name.clone(),
        command: process.command.clone(),
        memory,
        inject: target.can_inject(),
        obstacle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::attach::Missing;

    fn target(pid: u32, pids: &[u32]) -> Target {
        let process = Process { pid, pids: pids.to_vec(), uid: u32::MAX - 1, ..Process::default() };
        Target { process, reach: Err(Missing::Gone) }
    }

    fn sample(pid: u32, used: Option<u64>) -> ProcessSample {
        ProcessSample { pid, used, ..ProcessSample::default() }
    }

    #[test]
    fn memory_is_summed_over_devices_and_not_found_is_unknown() {
        let samples = [sample(7, Some(3)), sample(8, Some(100)), sample(7, Some(4)), sample(9, None)];
        let listed: Vec<_> = samples.iter().collect();
        assert_eq!(candidate(&target(7, &[7]), &listed).memory, Some(7));
        assert_eq!(candidate(&target(1, &[8, 1]), &listed).memory, Some(100), "by its other number");
        assert_eq!(candidate(&target(9, &[9]), &listed).memory, None);
        let absent = candidate(&target(2, &[2]), &listed);
        assert_eq!((absent.memory, absent.user.as_str()), (None, "4294967294"));
        assert_eq!(absent.obstacle.unwrap().0, "gone");
    }
}
