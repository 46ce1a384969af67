//! The balance of records: what the shim counted against what came here.

use gtop_protocol::frame::Runs;
use gtop_protocol::message::Loss;
use gtop_protocol::record::{Copy, Family, Kernel, Memset};

use super::snapshot::Records;
use super::work::class_of;

/// The earliest start and the latest end of any believable record of GPU work.
pub(super) fn span(runs: Runs<'_>) -> Option<(u64, u64)> {
    let mut span = None;
    for run in runs {
        let mut take = |validity, start: u64, end: u64| {
            if class_of(validity, start, end).is_valid() {
                span =
                    Some(span.map_or((start, end), |(from, to): (u64, u64)| (from.min(start), to.max(end))));
            }
        };
        match run.family() {
            Some(Family::Kernel) => run.each(|of: &Kernel| take(of.validity, of.start.get(), of.end.get())),
            Some(Family::Copy) => run.each(|of: &Copy| take(of.validity, of.start.get(), of.end.get())),
            Some(Family::Memset) => run.each(|of: &Memset| take(of.validity, of.start.get(), of.end.get())),
            Some(Family::Other) | None => {}
        }
    }
    span
}

/// Counts of one process, over all connections to it.
#[derive(Debug, Default)]
pub(super) struct Balance {
    /// Records received, by family.
    pub(super) kernel: u64,
    pub(super) memcpy: u64,
    pub(super) memset: u64,
    pub(super) other: u64,
    /// The balance of connections that are over.
    settled: Sums,
    /// The last word of the shim on this connection.
    loss: Option<Loss>,
    /// Records received before this connection.
    shown_before: u64,
    /// Records of this connection that came before what is known of it here.
    earlier: u64,
    /// The balance at that moment, which counts no more.
    base: Sums,
}

/// The shim's side of the balance.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    delivered: u64,
    cupti: u64,
    queue_full: u64,
    unknown_kind: u64,
    slow_viewer: u64,
    /// Bytes of buffers, not records.
    unread: u64,
}

impl Sums {
    /// Since this viewer joined.
    const fn of(loss: &Loss) -> Self {
        Self {
            delivered: loss.walked.saturating_sub(loss.joined_walked),
            cupti: loss.cupti_dropped.saturating_sub(loss.joined_cupti_dropped),
            queue_full: loss.queue_full.saturating_sub(loss.joined_queue_full),
            unknown_kind: loss.unknown_kind.saturating_sub(loss.joined_unknown_kind),
            slow_viewer: loss.dropped,
            unread: loss.unknown_bytes.saturating_sub(loss.joined_unknown_bytes),
        }
    }

    const fn minus(self, other: Self) -> Self {
        Self {
            delivered: self.delivered.saturating_sub(other.delivered),
            cupti: self.cupti.saturating_sub(other.cupti),
            queue_full: self.queue_full.saturating_sub(other.queue_full),
            unknown_kind: self.unknown_kind.saturating_sub(other.unknown_kind),
            slow_viewer: self.slow_viewer.saturating_sub(other.slow_viewer),
            unread: self.unread.saturating_sub(other.unread),
        }
    }

    /// What can be told of the moment at which so many records had come here.
    const fn after(self, records: u64) -> Self {
        let lost = self.queue_full.saturating_add(self.unknown_kind).saturating_add(self.slow_viewer);
        Self { delivered: records.saturating_add(lost), ..self }
    }

    const fn plus(self, other: Self) -> Self {
        Self {
            delivered: self.delivered.saturating_add(other.delivered),
            cupti: self.cupti.saturating_add(other.cupti),
            queue_full: self.queue_full.saturating_add(other.queue_full),
            unknown_kind: self.unknown_kind.saturating_add(other.unknown_kind),
            slow_viewer: self.slow_viewer.saturating_add(other.slow_viewer),
            unread: self.unread.saturating_add(other.unread),
        }
    }
}

/// Whether everything walked had been offered to this viewer, or lost for a cause, when the shim counted: what is
/// offered and not yet here is still to come, and then the counts agree.
pub(super) const fn is_whole(loss: &Loss) -> bool {
    let sums = Sums::of(loss);
    let missing = sums.queue_full.saturating_add(sums.unknown_kind);
    sums.delivered == loss.offered.saturating_add(missing)
}

impl Balance {
    /// Takes in what the shim counted; gives how many more records are lost than before.
    pub(super) fn heard(&mut self, loss: Loss) -> u64 {
        let before = self.records(0.0).lost();
        self.loss = Some(loss);
        self.records(0.0).lost().saturating_sub(before)
    }

    /// The connection is over. Records that were under way when it broke are not known to either side: its balance is
    /// closed with what came.
    pub(super) fn disconnect(&mut self) {
        let sums = self.loss.take().as_ref().map_or(Sums::default(), Sums::of);
        self.settled = self.settled.plus(sums.after(self.came()));
        self.earlier = 0;
        self.shown_before = self.shown();
    }

    /// So many records of this connection came before what follows and are not here: counts begin anew.
    pub(super) fn earlier(&mut self, records: u64) {
        let sums = self.loss.as_ref().map_or(Sums::default(), Sums::of);
        self.earlier = records;
        self.base = self.settled.plus(sums.after(self.came()));
    }

    /// Records of this connection.
    const fn came(&self) -> u64 {
        self.shown().saturating_sub(self.shown_before).saturating_add(self.earlier)
    }

    const fn shown(&self) -> u64 {
        self.kernel + self.memcpy + self.memset + self.other
    }

    /// Whether any record came.
    pub(super) const fn any(&self) -> bool {
        self.shown() > 0
    }

    /// The balance as it stands.
    pub(super) fn records(&self, per_second: f64) -> Records {
        let current = match self.loss.as_ref().map(Sums::of) {
            // As long as the shim has said nothing, what is here is what is known to be delivered.
            None => Sums::default().after(self.came()),
            // In a part of a recording the shim's counts and the records do not end together: what it counted and is not
            // here is in the next part, and the other way round.
            Some(sums) if self.earlier > 0 => sums.after(self.came()),
            Some(sums) => sums,
        };
        let sums = self.settled.plus(current).minus(self.base);
        Records {
            delivered: sums.delivered,
            shown: self.shown(),
            kernel: self.kernel,
            memcpy: self.memcpy,
            memset: self.memset,
            other: self.other,
            lost_cupti: sums.cupti,
            lost_queue_full: sums.queue_full,
            lost_unknown_kind: sums.unknown_kind,
            lost_slow_viewer: sums.slow_viewer,
            unread_bytes: sums.unread,
            per_second,
        }
    }
}

impl Records {
    /// Whether nothing is under way: every delivered record is shown or lost for a known cause.
    #[must_use]
    pub const fn balances(&self) -> bool {
        let lost = self.lost().saturating_sub(self.lost_cupti);
        self.delivered == self.shown.saturating_add(lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_cannot_be_is_no_more_than_a_count() {
        let mut balance = Balance { kernel: 90, ..Balance::default() };
        for records in [u64::MAX, 1, u64::MAX] {
            balance.earlier(records);
            balance.disconnect();
        }
        assert_eq!(balance.records(0.0).shown, 90);
    }

    #[test]
    fn what_is_lost_is_a_share_of_all_there_were() {
        let share = |lost_queue_full, shown| {
            let records = Records { shown, lost_queue_full, ..Records::default() };
            records.lost_share().map(|share| format!("{:.1} %", share * 100.0))
        };
        assert_eq!(share(6_317_194, 2_097_153).as_deref(), Some("75.1 %"));
        assert_eq!(share(6_211_060, 12_036_596 - 6_211_060).as_deref(), Some("51.6 %"));
        assert_eq!((share(0, 5).as_deref(), share(0, 0)), (Some("0.0 %"), None));
    }

    #[test]
    fn counts_start_when_this_viewer_joins_and_go_on_over_connections() {
        let mut balance = Balance { kernel: 90, memcpy: 5, ..Balance::default() };
        let loss = Loss {
            walked: 1100,
            joined_walked: 1000,
            queue_full: 7,
            joined_queue_full: 4,
            unknown_kind: 2,
            dropped: 0,
            cupti_dropped: 9,
            ..Loss::default()
        };
        assert_eq!(balance.heard(loss), 3 + 2 + 9);
        let records = balance.records(0.0);
        assert_eq!((records.delivered, records.shown, records.lost_cupti), (100, 95, 9));
        assert!(records.balances());
        balance.kernel += 10;
        assert!(!balance.records(0.0).balances());
        balance.disconnect();
        assert_eq!(balance.records(0.0).delivered, 110);
        balance.memset += 5;
        balance.heard(Loss { walked: 2000, joined_walked: 1994, dropped: 1, ..Loss::default() });
        let records = balance.records(0.0);
        assert_eq!((records.delivered, records.lost_slow_viewer, records.lost_queue_full), (116, 1, 3));
        assert!(records.balances());
    }

    #[test]
    fn what_came_earlier_and_is_not_here_is_not_counted() {
        let mut balance = Balance::default();
        let loss = Loss { walked: 1100, joined_walked: 1000, queue_full: 7, dropped: 3, ..Loss::default() };
        balance.heard(loss);
        balance.earlier(90);
        assert_eq!(balance.records(0.0).delivered, 0);
        balance.kernel += 20;
        let before = balance.records(0.0);
        assert_eq!(before.delivered, 20, "the shim has not counted them yet");
        assert!(before.balances());
        balance.heard(Loss { walked: 1121, dropped: 4, ..loss });
        let records = balance.records(0.0);
        assert_eq!((records.delivered, records.lost_queue_full, records.lost_slow_viewer), (21, 0, 1));
        assert!(records.balances());
        balance.disconnect();
        assert!(balance.records(0.0).balances());
        assert_eq!(balance.records(0.0).delivered, 21);
    }
}
