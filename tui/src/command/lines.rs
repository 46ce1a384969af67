//! What a command that would draw prints without a terminal: one line a second and process.

use std::collections::HashSet;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use gtop_protocol::Validity;
use tokio::time::{MissedTickBehavior, interval};

use super::{DAMAGED, Failure, Outcome, block_on};
use crate::app::Handle;
use crate::model::snapshot::{Begins, Link, Process, Snapshot, Source, SourceKind};
use crate::view::units;

/// Prints one line a second and process until all have ended, the reader has gone, or Ctrl-C.
pub fn lines(handle: &Handle) -> Outcome {
    block_on(async {
        let mut seconds = interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        seconds.tick().await;
        let mut told = HashSet::new();
        loop {
            tokio::select! {
                _ = seconds.tick() => {}
                _ = tokio::signal::ctrl_c() => return Ok(ExitCode::SUCCESS),
            }
            let snapshot = handle.snapshots.borrow().clone();
            let mut out = io::stdout().lock();
            if let Some(waiting) = waiting(&snapshot.source, snapshot.time)
                && writeln!(out, "{waiting}").and_then(|()| out.flush()).is_err()
            {
                return Ok(ExitCode::SUCCESS);
            }
            for process in &snapshot.processes {
                // Nothing more will be known of one that is not watched.
                if was_never_watched(process) && !told.insert(process.identity.pid) {
                    continue;
                }
                if writeln!(out, "{}", line(process, &snapshot)).and_then(|()| out.flush()).is_err() {
                    return Ok(ExitCode::SUCCESS);
                }
            }
            if matches!(snapshot.source.link, Link::Ended(_)) && snapshot.source.begins.is_none() {
                let source = &snapshot.source;
                return match &source.damage {
                    None => Ok(ExitCode::SUCCESS),
                    Some(damage) => Err(Failure::new(
                        DAMAGED,
                        format!("{}: {damage}; what could be read was played", source.label),
                    )),
                };
            }
        }
    })?
}

/// That watching has not begun, and what begins it, in one line.
fn waiting(source: &Source, now: u64) -> Option<String> {
    let label = &source.label;
    Some(match source.begins? {
        Begins::At(at) => {
            let seconds = at.saturating_sub(now).div_ceil(1_000_000_000);
            format!("{label}  not watched yet: begins in {seconds} s")
        }
        // Said at the beginning, and who has not come needs no line.
        Begins::Used => return None,
        Begins::Asked { pid } => format!("{label}  not watched: `gtop --attach {pid}` elsewhere begins"),
    })
}

/// Whether nothing was ever heard of a process, and nothing will be.
fn was_never_watched(process: &Process) -> bool {
    matches!(process.link, Link::Ended(_)) && !process.heard.state && process.records.delivered == 0
}

/// One process in one line.
fn line(process: &Process, snapshot: &Snapshot) -> String {
    let source = &snapshot.source;
    let identity = &process.identity;
    // Raw buffers do not tell whose they are.
    let who = match identity.pid {
        0 if identity.name.is_empty() => source.label.clone(),
        pid => format!("{} {pid}", identity.name),
    };
    let link = match &process.link {
        Link::Up => match (process.halt.and_then(|halt| halt.cause.name()), process.unheard) {
            (Some(halted), _) => halted.to_uppercase(),
            (None, Some(unheard)) => format!("{}, unheard for {unheard:.1} s", process.state.name()),
            (None, None) => process.state.name().to_owned(),
        },
        Link::Connecting => match &snapshot.replay {
            Some(_) if matches!(source.link, Link::Ended(_)) => "played to its end".to_owned(),
            Some(replay) => {
                let seconds = |ns: u64| ns as f64 / 1e9;
                format!("played to {:.1} of {:.1} s", seconds(replay.position), seconds(replay.length))
            }
            None if source.kind == SourceKind::File => "file".to_owned(),
            None => "connecting".to_owned(),
        },
        Link::Lost { retries, .. } => format!("connection lost, {retries} retries"),
        Link::Ended(why) if was_never_watched(process) => return format!("{who}  not watched: {why}"),
        Link::Ended(why) => return format!("{who}  ended: {why}"),
    };
    let reason = process.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let invalid =
        process.validity.rate_windows[1].map_or("?".to_owned(), |rate| format!("{:.1} %", rate * 100.0));
    let top = process
        .kernels
        .first()
        .map_or(String::new(), |row| format!("  top {} {:.1} %", row.name.short, row.share * 100.0));
    let rate = if process.is_mute() || process.unseen {
        "?".to_owned()
    } else {
        format!("{:.0}", process.records.per_second)
    };
    let more = units::and_more(process.misses_some());
    let bad = process.validity.total.iter().sum::<u64>() - process.validity.total[Validity::Valid as usize];
    let count = |count: u64| if process.unseen { "?".to_owned() } else { count.to_string() };
    let (shown, lost, bad) = (count(process.records.shown), count(process.records.lost()), count(bad));
    format!(
        "{who}  {link}{reason}  {rate} rec/s  {shown} shown  {lost}{more} lost  invalid {invalid} (10 s), {bad} in all{top}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::Replay;
    use gtop_protocol::message::StateCode;

    #[test]
    fn a_file_that_does_not_tell_whose_it_is_goes_by_its_name() {
        let source =
            Source { kind: SourceKind::File, label: "buffers.cuptibuf".to_owned(), ..Source::default() };
        let mut snapshot = Snapshot { source, ..Snapshot::default() };
        let said = |snapshot: &Snapshot| line(&Process::default(), snapshot);
        let file = said(&snapshot);
        assert!(file.starts_with("buffers.cuptibuf  file  0 rec/s"), "{file}");
        snapshot.source.kind = SourceKind::Live;
        snapshot.replay =
            Some(Replay { position: 1_250_000_000, length: 2_000_000_000, ..Replay::default() });
        let played = said(&snapshot);
        assert!(played.starts_with("buffers.cuptibuf  played to 1.2 of 2.0 s  0 rec/s"), "{played}");
        snapshot.source.link = Link::Ended("the end of the recording".to_owned());
        let over = said(&snapshot);
        assert!(over.starts_with("buffers.cuptibuf  played to its end  0 rec/s"), "{over}");
    }

    #[test]
    fn what_could_not_be_seen_is_not_counted_as_nothing() {
        let process =
            Process { unseen: true, state: StateCode::Unavailable, link: Link::Up, ..Process::default() };
        let said = line(&process, &Snapshot::default());
        assert!(said.contains("unavailable  ? rec/s  ? shown  ? lost  invalid ? (10 s), ? in all"), "{said}");
    }

    #[test]
    fn what_is_to_be_watched_later_says_when() {
        let source = |begins| Source { label: "serve".to_owned(), begins, ..Source::default() };
        let at = Some(Begins::At(61_000_000_000));
        assert_eq!(waiting(&source(at), 1).as_deref(), Some("serve  not watched yet: begins in 61 s"));
        assert!(waiting(&source(Some(Begins::Asked { pid: 7 })), 1).unwrap().contains("gtop --attach 7"));
        assert_eq!(waiting(&source(None), 1), None);
    }
}
