//! Launching or destroying what was destroyed before.

use gtop_protocol::calls::{call_name, result_name};
use gtop_protocol::message::Severity;

use super::{Facts, found};
use crate::model::lifecycle::execs::Misuse;
use crate::model::snapshot::Finding;
use crate::view::units::count;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let execs = &facts.lifecycle.execs;
    let kinds = [
        ("launch_after_destroy", "launched", &execs.launch_after_destroy),
        ("destroy_after_destroy", "destroyed again", &execs.destroy_after_destroy),
    ];
    let say = |(rule, done, list): (&'static str, &str, &Vec<Misuse>)| {
        let first = list.first()?;
        let which = first.gone.map_or("a graph gtop never saw created".to_owned(), |gone| {
            format!("graph {}, which was destroyed {}", gone.id, facts.ago(gone.time))
        });
        let event = &first.event;
        let finding = found(
            rule,
            Severity::Alarm,
            event.time.get(),
            format!("{which}, is {done}"),
            "Keep the handle with its owner, and clear it where the graph is destroyed; a destroyed handle may by chance \
             be another graph's.",
        );
        Some(
            finding
                .with(format!(
                    "{} on thread {}: {} ({})",
                    call_name(event.code.get()),
                    event.thread,
                    result_name(event.result.get()),
                    event.result
                ))
                .with(format!("{} such calls", count(list.len() as u64))),
        )
    };
    kinds.into_iter().filter_map(say).collect()
}
