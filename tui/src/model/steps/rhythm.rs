//! Telling steps from launches: where one begins, and whether they follow each other steadily.

use rustc_hash::FxHashMap;

use super::Launch;
use crate::model::snapshot::Steps as Row;

/// Fewer steps are no rhythm.
const FEWEST: usize = 8;

/// The steps among launches, if they have a rhythm.
pub(super) fn rhythm(launches: &[Launch]) -> Option<Row> {
    let (all, first) = beginnings(launches)?;
    // Graphs that follow each other in turn, each before the first comes again, are the pieces of one step.
    let begins = |graph: &u32| all.contains(graph);
    let order: Vec<&Launch> = launches.iter().filter(|launch| begins(&launch.graph)).collect();
    let differ = |pair: &[&Launch]| pair[0].graph != pair[1].graph || pair[0].cut || pair[1].cut;
    let in_turn = all.len() > 1 && order.windows(2).all(differ);
    let one = vec![first];
    let choices = if in_turn { [&one, &one] } else { [&all, &one] };
    choices.into_iter().find_map(|begins| steady(launches, begins))
}

/// The graphs that may begin a step, and the likeliest: between two steps the host has most to do, so the graph in which
/// steps begin is the one before whose launches there was the most time without a graph, all of them together. One that
/// is launched now and then (a prompt that was just taken in, say) comes behind longer pauses and begins few steps.
fn beginnings(launches: &[Launch]) -> Option<(Vec<u32>, u32)> {
    let mut leads: FxHashMap<u32, Vec<u64>> = FxHashMap::default();
    for launch in launches {
        leads.entry(launch.graph).or_default().extend(launch.lead);
    }
    leads.retain(|_, leads| leads.len() > 1);
    let leads: Vec<(u32, u64, u64)> = leads
        .into_iter()
        .map(|(graph, mut leads)| (graph, leads.len() as u64, quantile(&mut leads, 0.5)))
        .collect();
    let weight = |(graph, count, lead): &(u32, u64, u64)| {
        (count.saturating_mul(*lead), *lead, std::cmp::Reverse(*graph))
    };
    let (first, _, longest) = leads.iter().copied().max_by_key(weight)?;
    let mut all: Vec<u32> = leads
        .into_iter()
        .filter(|(_, _, lead)| lead.saturating_mul(2) >= longest)
        .map(|(graph, ..)| graph)
        .collect();
    all.sort_unstable();
    Some((all, first))
}

/// The steps that begin with these graphs, if at least four of five last within half of the median.
fn steady(launches: &[Launch], begins: &[u32]) -> Option<Row> {
    let at: Vec<usize> = (0..launches.len()).filter(|i| begins.contains(&launches[*i].graph)).collect();
    let whole = |pair: &&[usize]| !launches[pair[0]..pair[1]].iter().any(|launch| launch.cut);
    let pairs = at.windows(2).filter(whole);
    let steps: Vec<Step> = pairs.map(|pair| Step::of(&launches[pair[0]..=pair[1]])).collect();
    if steps.len() < FEWEST {
        return None;
    }
    let median = quantile(&mut steps.iter().map(|step| step.ns).collect::<Vec<_>>(), 0.5);
    let regular = steps.iter().filter(|step| step.ns.abs_diff(median) * 2 <= median).count();
    if regular * 5 < steps.len() * 4 {
        return None;
    }
    // A pause is no step.
    let is_step = |step: &&Step| step.ns <= median.saturating_mul(8);
    let steps: Vec<&Step> = steps.iter().filter(is_step).collect();
    let of =
        |what: fn(&Step) -> u64, q| quantile(&mut steps.iter().map(|step| what(step)).collect::<Vec<_>>(), q);
    let jumps: u64 = steps.windows(2).map(|pair| pair[0].ns.abs_diff(pair[1].ns)).sum();
    Some(Row {
        device: None,
        context: 0,
        current: true,
        count: steps.len() as u64,
        p50_ns: of(|step| step.ns, 0.5),
        p99_ns: of(|step| step.ns, 0.99),
        jitter_ns: jumps / (steps.len() as u64 - 1).max(1),
        kernels: of(|step| step.kernels, 0.5),
        launches: of(|step| step.launches, 0.5),
        idle_inside_ns: of(|step| step.inside, 0.5),
        idle_between_ns: of(|step| step.between, 0.5),
        graphs: begins.to_vec(),
    })
}

/// One step.
#[derive(Clone, Copy, Debug)]
struct Step {
    ns: u64,
    kernels: u64,
    launches: u64,
    inside: u64,
    between: u64,
}

impl Step {
    /// The launches of one step, and the first one of the next.
    fn of(launches: &[Launch]) -> Self {
        let (own, next) = launches.split_at(launches.len() - 1);
        let sum = |what: fn(&Launch) -> u64| own.iter().map(what).sum::<u64>();
        let between = own[own.len() - 1].idle_after;
        Self {
            ns: next[0].start - own[0].start,
            kernels: sum(|launch| launch.kernels),
            launches: own.len() as u64,
            inside: sum(|launch| launch.idle_inside + launch.idle_after) - between,
            between,
        }
    }
}

/// The value below which a share `q` of the values lies; 0 without values.
fn quantile(values: &mut [u64], q: f64) -> u64 {
    let rank = ((q * values.len() as f64).ceil() as usize).clamp(1, values.len().max(1)) - 1;
    if values.is_empty() { 0 } else { *values.select_nth_unstable(rank).1 }
}
