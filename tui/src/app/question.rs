//! What a person is asked before the shim is put into processes that run without it.

use crate::system::attach::{Missing, Target};
use crate::system::inject;
use crate::system::process::{Process, readable};

/// What is asked.
#[must_use]
pub fn title(targets: &[Target]) -> String {
    match targets {
        [one] => format!("Put the shim into process {}?", one.process.pid),
        many => format!("Put the shim into {} processes?", many.len()),
    }
}

/// What would happen, and what it costs; a paragraph each.
#[must_use]
pub fn lines(targets: &[Target]) -> Vec<String> {
    let name = |process: &Process| format!("{} {}", process.name, process.pid);
    let names: Vec<String> = targets.iter().map(|target| name(&target.process)).collect();
    let runs = if names.len() == 1 { "runs" } else { "run" };
    let mut lines = vec![
        format!("{} {runs} without gtop's library, so there is nothing to watch yet.", names.join(", ")),
        "One thread that waits in a system call would be stopped for about a millisecond, load the library on a \
         stack of its own, and go on waiting as it was. No other thread is stopped."
            .to_owned(),
        "The library then stays until the process ends, asleep while nobody watches. The first watching calls \
         CUPTI: that takes 15 to 800 ms of one thread and 12 to 16 MiB of each device's memory for good; while \
         watched, a busy server runs up to a fifth slower."
            .to_owned(),
        "Workers that start later below this process are treated alike.".to_owned(),
    ];
    for target in targets {
        if let Err(Missing::OtherTool(library)) = &target.reach {
            lines.push(format!(
                "Process {} has another tool loaded, {}: CUPTI serves one at a time, and may be busy.",
                target.process.pid,
                readable(library)
            ));
        }
        if let Some(filters) = inject::filters(target.process.pid) {
            lines.push(format!(
                "Process {} runs under {filters}: that is read first, and where it would end the process or silence \
                 the library nothing is put in. Containers' usual filters do neither.",
                target.process.pid
            ));
        }
    }
    lines
}
