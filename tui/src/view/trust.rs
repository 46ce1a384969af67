//! Whether the numbers can be believed: invalid records, what was lost, the pool, CUPTI's verdict, and the kinds
//! with what toggling each would do.

mod words;

use gtop_protocol::Kind;
use ratatui::layout::Rect;
use ratatui::text::Span;

use super::canvas::{Canvas, Part, Place, fit};
use super::effect::effect;
use super::spark::gauge;
use super::state::Pane;
use super::text::{cut_end, wrap};
use super::theme::Role;
use super::{Cx, advice, causes, header, kinds, pool, rates, sampled, units};
use crate::model::snapshot::Process;
use header::lost_role;
use words::{
    balance, classes, clock, cost, first_again, first_bad, invalid_spans, lost, notes, others, pool_rows,
    verdict, verdict_role,
};

/// The fewest lines and cells of a chart, and the most lines.
const CHART: usize = 9;
const CHARTED: usize = 20;
const WIDE: usize = 40;

/// One line, and when it gives way: the higher `rank`, the sooner.
struct Row {
    rank: u8,
    spans: Vec<Span<'static>>,
    /// Whether it goes on from the row before.
    goes_on: bool,
}

/// Draws the pane.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let inner = place.inner();
    let (cells, height) = (usize::from(inner.width), usize::from(inner.height));
    let mut rows = cx.process.map_or_else(Vec::new, |process| rows(cx, process, cells, height));
    let all = rows.len();
    let scrolls = place.focused && cx.state.tab > 0;
    let top = if scrolls { cx.state.top(Pane::Trust, all, height) } else { 0 };
    if !scrolls {
        while rows.len() > height {
            let Some(worst) = (0..rows.len()).max_by_key(|&i| (rows[i].rank, i)) else { break };
            let cut = rows.remove(worst).goes_on || rows.get(worst).is_some_and(|next| next.goes_on);
            if let Some(last) = worst.checked_sub(1).and_then(|before| rows.get_mut(before)).filter(|_| cut) {
                end_with_ellipsis(&mut last.spans, cells);
            }
        }
    }
    let shown = rows.len().min(height + top) - top.min(rows.len());
    let mut notes = Vec::new();
    if shown < all {
        notes.push(format!("{} more", units::some(all - shown, "line")));
    }
    // What can be believed is asked of all records.
    if !cx.state.filter.is_empty() && cx.state.tab > 0 {
        notes.push("of all records, whatever the filter".to_owned());
    }
    let note = notes.join(" · ");
    let inner = canvas.pane(place, "Trust", &note);
    canvas.seen.rows[Pane::Trust as usize] = height;
    canvas.seen.all[Pane::Trust as usize] = all;
    if cx.process.is_none() {
        canvas.spans(inner, 0, vec![cx.theme().span("no process is watched", Role::Dim)]);
    }
    let taken = rows.len().saturating_sub(top);
    for (i, row) in rows.into_iter().skip(top).enumerate() {
        canvas.spans(inner, i, row.spans);
    }
    let left = height.saturating_sub(taken + 1);
    if left >= CHART
        && cells >= WIDE
        && let Some(chart) = cx.process.and_then(|process| rates::chart(process, cx.snapshot.time))
    {
        let y = inner.y + (height - left) as u16;
        let area = Rect { y, height: left.min(CHARTED) as u16, ..inner };
        chart.draw(cx, cx.snapshot.time, area, canvas);
    }
}

/// Lines that all there is to say would take beside other panes, border included.
pub(super) fn wanted(cx: &Cx<'_>, cells: usize) -> usize {
    // As many as there are where the kinds have a line each.
    const MOST: usize = 23;
    cx.process.map_or(0, |process| rows(cx, process, cells, MOST).len() + 2)
}

/// Draws the most important of it in the one or two lines of a small screen.
pub(super) fn draw_folded(cx: &Cx<'_>, area: Rect, canvas: &mut Canvas<'_>) {
    let Some(process) = cx.process else { return };
    let theme = cx.theme();
    let cells = usize::from(area.width).saturating_sub(2);
    let inner = Rect { x: area.x.saturating_add(1), width: cells as u16, ..area };
    let mut lines: Vec<Vec<Part>> = Vec::new();
    if let Some(advice) = advice::on_state(cx, process) {
        let what = cut_end(&format!("{}: {}", advice.word, advice.what), cells);
        lines.push(vec![Part::new(0, vec![theme.span(what, advice.role)])]);
        if area.height > 1 {
            lines.push(vec![Part::new(0, vec![theme.span(cut_end(&advice.todo, cells), Role::Strong)])]);
        }
    }
    let validity = &process.validity;
    let mut first = vec![
        Part::new(0, invalid_spans(theme, process, &[2])),
        Part::new(2, vec![theme.span(classes(process), Role::Plain)]),
        Part::new(1, vec![first_bad(cx, process, 0)]),
    ];
    let mut second = Vec::new();
    if let Some(pool) = pool::worst(process) {
        let (word, role) = pool::word(pool);
        // The word is what matters; the gauge is for where there is room.
        let filled = if cells >= 60 { format!("{} ", gauge(pool::share(pool), 8)) } else { String::new() };
        second.push(Part::new(
            0,
            vec![
                theme.span(format!("pool {filled}{} ", pool::fraction(pool)), Role::Plain),
                theme.span(word, role),
            ],
        ));
        if let Some(left) = pool::left(pool) {
            second.push(Part::new(0, vec![theme.span(left, role)]));
        }
    }
    second.push(Part::new(2, vec![theme.span(verdict(process).0, verdict_role(process))]));
    if let Some(line) = kinds::harms(cx, process).into_iter().next() {
        second.push(Part::new(1, vec![theme.span(line.trim_end_matches(": asks").to_owned(), Role::Warn)]));
    }
    second.push(Part::new(3, vec![theme.span(lost(process), lost_role(process))]));
    let bad = validity.rate_windows[2].is_none_or(|rate| rate > 0.0);
    let fills = pool::worst(process).and_then(pool::left).is_some();
    if usize::from(area.height) == lines.len() + 1 && (!bad || fills) {
        first.truncate(1);
        if cells < 60 || fills {
            // The last minute without the whole: the pool matters more.
            first[0].spans.truncate(3);
        }
        first.append(&mut second);
    }
    lines.push(first);
    lines.push(second);
    for (i, parts) in lines.into_iter().take(usize::from(area.height)).enumerate() {
        let (spans, _) = fit(parts, " · ", cells);
        canvas.spans(inner, i, spans);
    }
}

/// A badge's role for running text.
const fn role_of(role: Role) -> Role {
    match role {
        Role::BadgeAlarm => Role::Alarm,
        other => other,
    }
}

fn rows(cx: &Cx<'_>, process: &Process, cells: usize, height: usize) -> Vec<Row> {
    let theme = cx.theme();
    let mut rows = Vec::new();
    let mut push = |rank, goes_on, spans| rows.push(Row { rank, spans, goes_on });
    let advice = advice::on_state(cx, process);
    let in_trouble = advice.is_some();
    if let Some(advice) = advice {
        for (i, line) in wrap(&format!("{}: {}", advice.word, advice.what), cells).into_iter().enumerate() {
            push(if i < 2 { 0 } else { 4 }, i > 0, vec![theme.span(line, advice.role)]);
        }
        for (i, line) in wrap(&advice.todo, cells).into_iter().enumerate() {
            push(if i < 2 { 0 } else { 2 }, i > 0, vec![theme.span(line, Role::Strong)]);
        }
    }
    let below = rows.len();
    let mut push = |rank, goes_on, spans| rows.push(Row { rank, spans, goes_on });
    let windows: &[usize] = if cells >= 52 { &[0, 1, 2] } else { &[2] };
    push(0, false, invalid_spans(theme, process, windows));
    push(1, false, vec![theme.span(classes(process), Role::Plain)]);
    push(1, false, vec![first_bad(cx, process, cells)]);
    let roomy = cells >= 76 && height >= 24;
    if roomy {
        if let Some(again) = first_again(cx, process) {
            push(3, false, vec![again]);
        }
        let over_time = rates::over_time(theme, process, cells).into_iter().filter(|_| !process.unseen);
        for line in over_time.chain(rates::whose(theme, process, cells)) {
            push(5, false, line);
        }
    }
    for cause in causes::causes(process, cx.snapshot) {
        for (i, line) in wrap(&format!("likely: {cause}"), cells).into_iter().enumerate() {
            push(3, i > 0, vec![theme.span(line, Role::Warn)]);
        }
    }
    let rank = if process.records.is_whole() { 3 } else { 1 };
    let balance = if roomy { balance(process) } else { lost(process) };
    for (i, line) in wrap(&balance, cells).into_iter().enumerate() {
        push(rank, i > 0, vec![theme.span(line, lost_role(process))]);
    }
    if let Some(text) = notes(process) {
        push(7, false, vec![theme.span(text, Role::Dim)]);
    }
    push(9, false, Vec::new());
    pool_rows(cx, process, cells, &mut push);
    let (verdict, reason) = verdict(process);
    push(3, false, vec![theme.span(verdict, verdict_role(process))]);
    for line in wrap(reason, cells).into_iter().filter(|line| !line.is_empty()) {
        push(5, true, vec![theme.span(line, Role::Dim)]);
    }
    if let Some(spans) = sampled::line(theme, process, cells) {
        push(2, false, spans);
    }
    if let Some(spans) = cost(theme, process, cells) {
        push(6, false, spans);
    }
    if let Some(clock) = clock(cx, process) {
        push(7, false, vec![clock]);
    }
    if roomy {
        let (text, role) = others(process);
        for (i, line) in wrap(&text, cells).into_iter().enumerate() {
            push(7, i > 0, vec![theme.span(line, role)]);
        }
    }
    if let Some(refused) = kinds::refused(process) {
        for (i, line) in wrap(&refused, cells).into_iter().enumerate() {
            push(1, i > 0, vec![theme.span(line, Role::Alarm)]);
        }
    }
    if header::is_over(cx, process) {
        return rows;
    }
    let gap = || Row { rank: 9, spans: Vec::new(), goes_on: false };
    let kinds = kind_rows(cx, process, cells, height.saturating_sub(rows.len() + 1), in_trouble);
    // The keys stay on the tab, however much there is to say.
    if in_trouble && cx.state.tab > 0 && rows.len() + 1 + kinds.len() > height {
        rows.splice(below..below, kinds.into_iter().chain([gap()]));
    } else {
        rows.push(gap());
        rows.extend(kinds);
    }
    rows
}

/// The kinds, with what toggling each would do as far as there is room.
fn kind_rows(cx: &Cx<'_>, process: &Process, cells: usize, room: usize, in_trouble: bool) -> Vec<Row> {
    let theme = cx.theme();
    let mut rows = Vec::new();
    if room >= Kind::ALL.len() && cells >= 44 {
        // What each toggle would do in full, as far as there is room: first for those that would do harm.
        let sentences = |which: fn(&Process, Kind) -> bool| {
            let lines = |kind: Kind| {
                let wanted = cells >= 76 && cx.can_ask() && which(process, kind);
                if wanted { kinds::sentence(theme, process, kind, cells) } else { Vec::new() }
            };
            Kind::ALL.map(lines)
        };
        let choices = [
            sentences(|_, _| true),
            sentences(|process, kind| effect(process, kind).asks),
            sentences(|_, _| false),
        ];
        let fits = |lines: &&[Vec<Vec<Span<'static>>>; Kind::ALL.len()]| {
            lines.iter().map(Vec::len).sum::<usize>() + Kind::ALL.len() <= room
        };
        for (kind, lines) in Kind::ALL.into_iter().zip(choices.iter().find(fits).into_iter().flatten()) {
            rows.push(Row { rank: 0, spans: kinds::long(cx, process, kind), goes_on: false });
            rows.extend(lines.iter().map(|spans| Row { rank: 6, spans: spans.clone(), goes_on: true }));
        }
    } else {
        let per_row = (cells / 18).clamp(1, 4);
        for row in Kind::ALL.chunks(per_row) {
            let spans =
                row.iter().flat_map(|kind| kinds::short(cx, process, *kind, cells / per_row)).collect();
            rows.push(Row { rank: if in_trouble { 4 } else { 1 }, spans, goes_on: false });
        }
        rows.extend(kinds::harms(cx, process).into_iter().map(|line| Row {
            rank: if in_trouble { 4 } else { 0 },
            spans: vec![theme.span(line, Role::Warn)],
            goes_on: false,
        }));
    }
    rows
}

/// Marks a line as cut short.
fn end_with_ellipsis(spans: &mut Vec<Span<'static>>, cells: usize) {
    let taken: usize = spans.iter().map(Span::width).sum();
    if let Some(last) = spans.last_mut() {
        let room = last.width() + cells.saturating_sub(taken);
        last.content = cut_end(&format!("{} …", last.content), room.max(1)).into();
    }
}
