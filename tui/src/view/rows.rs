//! The rows of the kernels' table: filtered, put into groups, compared with an earlier moment, sorted.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::family::Families;
use super::subjects;
use super::{Sort, ViewState};
use crate::model::sampling::Estimate;
use crate::model::snapshot::{Bar, KernelEstimate, KernelName, KernelRow, Process, Snapshot};

/// What the rows are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    /// Kernels, one a name.
    #[default]
    Kernel,
    /// Kernels of one template: the short name without its arguments.
    Template,
    /// Kernels of one family.
    Family,
    /// Kernels of one executable graph.
    Graph,
}

impl Group {
    /// Every grouping with its name.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::Kernel, "kernel"),
        (Self::Template, "template"),
        (Self::Family, "family"),
        (Self::Graph, "graph"),
    ];

    /// As the table's heading says it.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(group, _)| *group == self).map_or("", |(_, name)| name)
    }

    /// The one after this.
    pub(crate) fn next(self) -> Self {
        let at = Self::ALL.iter().position(|(group, _)| *group == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()].0
    }
}

/// Kernels as they were at another time, to compare with.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// For people: `17:20:41`, `deploy 17:20:41`, a file's name.
    pub label: String,
    /// Whether it was this process at an earlier moment, so that its calls are among those of now.
    pub earlier: bool,
    /// Whether it is the moment at which the list to choose from was opened.
    pub is_now: bool,
    /// The process it is about; `None` is any.
    pub pid: Option<u32>,
    /// Calls and total nanoseconds by mangled name.
    kernels: Arc<FxHashMap<String, (u64, u64)>>,
}

impl Baseline {
    /// The kernels of a process at a moment.
    #[must_use]
    pub fn of(process: &Process, label: String, earlier: bool) -> Self {
        let kernels = process.kernels.iter().map(|row| (row.name.mangled.clone(), (row.calls, row.total_ns)));
        let pid = earlier.then_some(process.identity.pid);
        Self { label, earlier, is_now: false, pid, kernels: Arc::new(kernels.collect()) }
    }

    /// All kernels of a recording, whichever of its processes ran them.
    #[must_use]
    pub fn of_recording(snapshot: &Snapshot, label: String) -> Self {
        let mut kernels: FxHashMap<String, (u64, u64)> = FxHashMap::default();
        for row in snapshot.processes.iter().flat_map(|process| process.kernels.iter()) {
            let sum = kernels.entry(row.name.mangled.clone()).or_default();
            *sum = (sum.0.saturating_add(row.calls), sum.1.saturating_add(row.total_ns));
        }
        Self { label, earlier: false, is_now: false, pid: None, kernels: Arc::new(kernels) }
    }
}

/// One row.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    /// Its numbers. Those of a group are sums, and its quantiles come from coarser buckets.
    pub(crate) stats: Cow<'a, KernelRow>,
    /// How many kernels it stands for.
    pub(crate) members: usize,
    /// Calls and total nanoseconds at the moment that is compared with.
    before: Option<(u64, u64)>,
}

impl Row<'_> {
    /// How much longer a call takes than at the moment that is compared with: 0.18 is 18 % longer. `None` without
    /// calls on either side.
    pub(crate) fn change(&self, baseline: &Baseline) -> Option<f64> {
        let (calls, total) = self.before.filter(|(calls, _)| *calls > 0)?;
        let before = total as f64 / calls as f64;
        let (now_calls, now_total) = if baseline.earlier {
            (self.stats.calls.checked_sub(calls)?, self.stats.total_ns.checked_sub(total)?)
        } else {
            (self.stats.calls, self.stats.total_ns)
        };
        (now_calls > 0 && before > 0.0).then(|| now_total as f64 / now_calls as f64 / before - 1.0)
    }
}

/// The rows as they are shown.
pub(crate) fn rows<'a>(process: &'a Process, state: &ViewState) -> Vec<Row<'a>> {
    let filter = &state.filter;
    let mut rows: Vec<Row<'a>> = if state.group == Group::Graph {
        let kept = process.by_graph.iter().filter(|row| filter.keeps(&subjects::Graph(row)));
        kept.map(|row| Row { stats: Cow::Borrowed(row), members: 1, before: None }).collect()
    } else {
        let here = |baseline: &&Baseline| baseline.pid.is_none_or(|pid| pid == process.identity.pid);
        let baseline = state.baseline.as_ref().filter(here);
        let before = |row: &KernelRow| baseline?.kernels.get(&row.name.mangled).copied();
        let keeps =
            |row: &&KernelRow| filter.is_empty() || filter.keeps(&subjects::Kernel(row, &state.families));
        let kept = process.kernels.iter().filter(keeps);
        kept.map(|row| Row { stats: Cow::Borrowed(row), members: 1, before: before(row) }).collect()
    };
    if matches!(state.group, Group::Template | Group::Family) {
        rows = grouped(&rows, state.group, &state.families);
    }
    let order = |a: &Row<'_>, b: &Row<'_>| {
        let by_name = a.stats.name.short.cmp(&b.stats.name.short).then(a.stats.id.cmp(&b.stats.id));
        let order = compare(a, b, state.sort, state.baseline.as_ref());
        (if state.reversed { order.reverse() } else { order }).then(by_name)
    };
    rows.sort_by(order);
    rows
}

/// The larger first, names from A; equal ones are told apart by their names, so that rows do not dance.
fn compare(a: &Row<'_>, b: &Row<'_>, sort: Sort, baseline: Option<&Baseline>) -> Ordering {
    let (x, y) = (&a.stats, &b.stats);
    let change = |row: &Row<'_>| baseline.and_then(|base| row.change(base)).unwrap_or(f64::NEG_INFINITY);
    let weight = |row: &KernelRow, seen: f64, likely: fn(&KernelEstimate) -> Estimate| {
        row.estimate.as_ref().map_or(seen, |estimate| likely(estimate).value)
    };
    let total = |row: &KernelRow| weight(row, row.total_ns as f64, |likely| likely.total_ns);
    let calls = |row: &KernelRow| weight(row, row.calls as f64, |likely| likely.calls);
    let rate = |row: &KernelRow| weight(row, row.per_second.unwrap_or(-1.0), |likely| likely.per_second);
    match sort {
        Sort::Share => total(y).total_cmp(&total(x)),
        Sort::Calls => calls(y).total_cmp(&calls(x)),
        Sort::Rate => rate(y).total_cmp(&rate(x)),
        Sort::Shortest => y.min_ns.cmp(&x.min_ns),
        Sort::Median => y.p50_ns.cmp(&x.p50_ns),
        Sort::Tail => y.p99_ns.cmp(&x.p99_ns),
        Sort::Longest => y.max_ns.cmp(&x.max_ns),
        Sort::Invalid => y.invalid.cmp(&x.invalid),
        Sort::Change => change(b).total_cmp(&change(a)),
        Sort::Name => x.name.short.cmp(&y.name.short),
    }
}

/// The place of the selected row; the first when none is.
pub(crate) fn selected(rows: &[Row<'_>], kernel: Option<u32>) -> usize {
    rows.iter().position(|row| Some(row.stats.id) == kernel).unwrap_or(0)
}

fn grouped<'a>(rows: &[Row<'a>], group: Group, families: &Families) -> Vec<Row<'a>> {
    let mut groups: Vec<(String, Vec<&Row<'a>>)> = Vec::new();
    let mut places: FxHashMap<String, usize> = FxHashMap::default();
    for row in rows {
        let name = match group {
            Group::Family => families.of(&row.stats.name).to_owned(),
            _ => template(&row.stats.name.short).to_owned(),
        };
        let at = *places.entry(name.clone()).or_insert_with(|| {
            groups.push((name, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(row);
    }
    groups.into_iter().map(|(name, members)| sum(name, &members)).collect()
}

/// A short name without its template arguments, without the digits that count variants and without those of a hash.
fn template(short: &str) -> &str {
    let head = short.split(['<', '~']).next().unwrap_or(short);
    let head = head.split(": ").next().unwrap_or(head);
    head.trim_end_matches(|c: char| c.is_ascii_digit() || c == '_')
}

/// Ids of groups, apart from those of kernels and stable from frame to frame.
fn group_id(name: &str) -> u32 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    0x4000_0000 | (hash & 0x3fff_ffff)
}

fn sum<'a>(name: String, members: &[&Row<'a>]) -> Row<'a> {
    let of = |value: fn(&KernelRow) -> u64| members.iter().map(|row| value(&row.stats)).sum::<u64>();
    let counted = || members.iter().filter(|row| row.stats.calls > 0);
    let bars = merge(members);
    let (min_ns, max_ns) = (
        counted().map(|row| row.stats.min_ns).min().unwrap_or(0),
        counted().map(|row| row.stats.max_ns).max().unwrap_or(0),
    );
    let quantile = |q| quantile(&bars, q).clamp(min_ns, max_ns);
    let length = members.iter().map(|row| row.stats.trend.len()).max().unwrap_or(0);
    let trend = |at: usize| members.iter().filter_map(|row| row.stats.trend.get(at)).sum();
    let stats = KernelRow {
        estimate: estimate(members),
        id: group_id(&name),
        calls: of(|row| row.calls),
        invalid: of(|row| row.invalid),
        overlong: of(|row| row.overlong),
        windows: std::array::from_fn(|window| {
            [0, 1].map(|which| members.iter().map(|row| row.stats.windows[window][which]).sum())
        }),
        total_ns: of(|row| row.total_ns),
        min_ns,
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        max_ns,
        share: members.iter().map(|row| row.stats.share).sum(),
        per_second: members.iter().map(|row| row.stats.per_second).sum(),
        trend: (0..length).map(trend).collect(),
        name: Arc::new(KernelName { mangled: name.clone(), full: name.clone(), short: name }),
        bars,
    };
    let before = members.iter().filter_map(|row| row.before).reduce(|a, b| (a.0 + b.0, a.1 + b.1));
    Row { stats: Cow::Owned(stats), members: members.iter().map(|row| row.members).sum(), before }
}

/// What a group is likely to sum up to. Its kernels ran in the same windows, so that their errors add up at worst.
fn estimate(members: &[&Row<'_>]) -> Option<KernelEstimate> {
    let add = |a: Estimate, b: Estimate| Estimate {
        value: a.value + b.value,
        low: a.low + b.low,
        high: a.high + b.high,
    };
    let all: Option<Vec<KernelEstimate>> = members.iter().map(|row| row.stats.estimate).collect();
    all?.into_iter().reduce(|a, b| KernelEstimate {
        calls: add(a.calls, b.calls),
        per_second: add(a.per_second, b.per_second),
        total_ns: add(a.total_ns, b.total_ns),
        share: add(a.share, b.share),
    })
}

fn merge(members: &[&Row<'_>]) -> Arc<[Bar]> {
    let mut all: Vec<Bar> = members.iter().flat_map(|row| row.stats.bars.iter().copied()).collect();
    all.sort_unstable_by_key(|bar| bar.from);
    all.chunk_by(|a, b| a.from == b.from)
        .map(|same| Bar { count: same.iter().map(|bar| bar.count).sum(), ..same[0] })
        .collect()
}

/// The value below which a share `q` of all lies, as far as the bars tell.
pub(crate) fn quantile(bars: &[Bar], q: f64) -> u64 {
    let total: u64 = bars.iter().map(|bar| bar.count).sum();
    let rank = ((q * total as f64).ceil() as u64).clamp(1, total.max(1));
    let mut seen = 0;
    for bar in bars {
        if seen + bar.count >= rank {
            let inside = ((rank - seen) as f64 - 0.5) / bar.count as f64;
            return bar.from + (inside * (bar.to - bar.from) as f64) as u64;
        }
        seen += bar.count;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u32, short: &str, calls: u64, each: u64) -> KernelRow {
        KernelRow {
            id,
            name: KernelName { mangled: short.into(), full: short.into(), short: short.into() }.into(),
            calls,
            total_ns: calls * each,
            min_ns: each,
            p50_ns: each,
            max_ns: each,
            share: 0.25,
            trend: vec![0.25; 3],
            bars: [Bar { from: each, to: each + 2, count: calls }].into(),
            ..KernelRow::default()
        }
    }

    fn process(rows: Vec<KernelRow>) -> Process {
        Process { kernels: rows.into(), ..Process::default() }
    }

    fn ids(process: &Process, state: &ViewState) -> Vec<u32> {
        rows(process, state).iter().map(|row| row.stats.id).collect()
    }

    #[test]
    fn rows_of_equal_weight_keep_their_order() {
        let process = process(vec![row(1, "b", 1, 5), row(2, "a", 1, 5), row(3, "c", 1, 9)]);
        let mut state = ViewState::default();
        assert_eq!(ids(&process, &state), [3, 2, 1]);
        state.reversed = true;
        assert_eq!(ids(&process, &state), [2, 1, 3], "names keep their order");
        state.sort = Sort::Name;
        assert_eq!(ids(&process, &state), [3, 1, 2]);
        state.reversed = false;
        assert_eq!(ids(&process, &state), [2, 1, 3]);
        let rows = rows(&process, &state);
        assert_eq!((selected(&rows, Some(1)), selected(&rows, Some(99))), (1, 0));
    }

    #[test]
    fn groups_add_up() {
        let process = process(vec![
            row(1, "flash_fwd<64>", 10, 100),
            row(2, "flash_fwd<128>", 30, 200),
            row(3, "nvjet_tst_1", 5, 50),
        ]);
        let mut state = ViewState { group: Group::Template, ..ViewState::default() };
        let all = rows(&process, &state);
        let flash = &all[0];
        assert_eq!((flash.stats.name.short.as_str(), flash.members), ("flash_fwd", 2));
        let sums = &flash.stats;
        assert_eq!((sums.calls, sums.total_ns, sums.min_ns, sums.max_ns), (40, 7_000, 100, 200));
        assert_eq!((sums.p50_ns, sums.share, sums.trend[0]), (200, 0.5, 0.5));
        assert_eq!(all[1].stats.name.short, "nvjet_tst");
        state.group = Group::Family;
        let all = rows(&process, &state);
        let names: Vec<_> = all.iter().map(|row| row.stats.name.short.clone()).collect();
        assert_eq!(names, ["attention", "gemm"]);
        assert_ne!(all[0].stats.id, all[1].stats.id);
        state.filter = crate::filter::parse("family=gemm").unwrap();
        assert_eq!(rows(&process, &state).len(), 1);
    }

    #[test]
    fn what_has_changed_since_a_moment_is_of_the_calls_since_then() {
        let before = process(vec![row(1, "a", 10, 100), row(2, "b", 10, 100)]);
        let mut now = process(vec![row(1, "a", 20, 100), row(2, "b", 10, 100), row(3, "c", 5, 1)]);
        let rows_now = Arc::make_mut(&mut now.kernels);
        rows_now[0].total_ns = 1_000 + 1_180;
        let mut state = ViewState { sort: Sort::Change, ..ViewState::default() };
        let baseline = Baseline::of(&before, "12:04".to_owned(), true);
        state.baseline = Some(baseline.clone());
        let all = rows(&now, &state);
        let change = |at: usize| all[at].change(&baseline);
        assert_eq!(all[0].stats.id, 1);
        assert!((change(0).unwrap() - 0.18).abs() < 1e-9);
        assert_eq!((change(1), change(2)), (None, None), "no call since, and none before");

        let file = Baseline::of(&before, "old.gtop".to_owned(), false);
        assert!((all[0].change(&file).unwrap() - 0.09).abs() < 1e-9, "all of it against all of the file");
        state.group = Group::Family;
        let family = &rows(&now, &state)[0];
        assert!((family.change(&baseline).unwrap() - (1_185.0 / 15.0 / 100.0 - 1.0)).abs() < 1e-9);
    }
}
