//! One watched process: everything its frames have told.

mod cost;
mod pulse;
mod share;
mod told;
mod words;

use std::collections::BTreeMap;
use std::sync::Arc;

use gtop_protocol::clock::{Domain, Jump};
use gtop_protocol::cupti::CuptiVersion;
use gtop_protocol::frame::{Frame, FrameKind, RecordSizes, Runs};
use gtop_protocol::lifecycle;
use gtop_protocol::message::{
    self, Clock, Damaged, Hello, HostBuffers, Loss, Notice, Observers, PoolState, Severity, State, StateCode,
    names, pools,
};
use gtop_protocol::viewer::{Earlier, Halted};
use gtop_protocol::{Kind, KindSet};

use super::events::Events;
use super::explained::Told;
use super::lifecycle::Lifecycle;
use super::names::safe;
use super::records;
use super::snapshot::{Cupti, Finding, Heard, Identity, Kinds, Link, Pool};
use super::time::{Moment, SECOND, cupti_time};
use super::traced::Traced;
use super::trend::Trend;
use super::work::Work;
use crate::view::units::count;
use cost::Costs;
use pulse::Delays;
use share::Rows;
use words::{Said, jump_in_words, read_pool};

/// How long after its end a record may come, or before it by a clock that differs; beyond that the clocks have nothing to
/// do with each other, nanoseconds.
const IN_STEP: u64 = 30 * SECOND;
/// Devices of one process whose memory is followed.
const MAX_DEVICES: usize = 64;
/// Pools of one process that are kept.
const MAX_POOLS: usize = 4096;

/// Everything known of one process.
#[derive(Debug)]
pub(super) struct Process {
    identity: Arc<Identity>,
    pub(super) link: Link,
    cupti: Option<Cupti>,
    state: StateCode,
    heard: Heard,
    reason: Option<String>,
    since: u64,
    watchers: u32,
    held: bool,
    tainted: bool,
    subscribed: bool,
    first_call_ns: Option<u64>,
    kinds: Kinds,
    pools: Vec<Pool>,
    host_buffers: Option<HostBuffers>,
    costs: Costs,
    clock: Option<Clock>,
    /// How often a clock has jumped.
    jumps: u64,
    sizes: RecordSizes,
    /// The sequence number the next frame should have; 0 before the first.
    expected: u64,
    said_invalid: bool,
    losses: Said,
    unread: Said,
    gaps: Said,
    /// When it was first seen armed.
    armed_at: Option<Moment>,
    /// Whether it was ever seen to collect records, if only such as do not come.
    collected: bool,
    /// When the newest record came that is on the timeline, and how long after its end that was, nanoseconds.
    drawn: Option<(Moment, u64)>,
    /// How late records came.
    delays: Delays,
    /// When it last said anything.
    heard_at: Option<Moment>,
    /// What keeps it from running, and since when.
    halt: Option<(Halted, Moment)>,
    traced: Traced,
    /// Since when kernels are traced; `None` while they are not, or while that is not known.
    kernels_since: Option<Moment>,
    /// Since when its records are counted: when the first of them came, or since what came earlier.
    counted_since: Option<Moment>,
    /// Since when it is armed without a break.
    armed_since: Option<Moment>,
    /// Kernel records, and when the last of them came.
    last_kernel: Option<(u64, Moment)>,
    /// Whether it is silent as far as NVML tells.
    nvml_silent: bool,
    /// Whether counts are left out that were taken while records were between the shim's hands.
    only_whole: bool,
    /// When it was cut off, though it goes on.
    stopped: Option<Moment>,
    pub(super) work: Work,
    lifecycle: Lifecycle,
    /// Memory by NVML's device.
    trends: BTreeMap<u32, Trend>,
    /// How much of it is accounted for.
    explained: Trend,
    found: Option<(Moment, Arc<[Finding]>)>,
    /// Rules whose findings are in the event log.
    said_rules: Vec<&'static str>,
    /// Whether what is told of it is over, so that nobody can change it: in a recording.
    over: bool,
    rows: Option<(Moment, Rows)>,
}

impl Process {
    /// A process of which only its id is known, as this machine numbers it. `over` when it is told of by a recording.
    pub(super) fn new(pid: u32, budget: usize, over: bool) -> Self {
        Self {
            identity: Arc::new(Identity { pid, ..Identity::default() }),
            link: Link::Connecting,
            cupti: None,
            state: StateCode::Loaded,
            heard: Heard::default(),
            reason: None,
            since: 0,
            watchers: 0,
            held: false,
            tainted: false,
            subscribed: false,
            first_call_ns: None,
            kinds: Kinds::default(),
            pools: Vec::new(),
            host_buffers: None,
            costs: Costs::default(),
            clock: None,
            jumps: 0,
            sizes: RecordSizes([0; 4]),
            expected: 0,
            said_invalid: false,
            losses: Said::default(),
            unread: Said::default(),
            gaps: Said::default(),
            armed_at: None,
            collected: false,
            drawn: None,
            delays: Delays::default(),
            heard_at: None,
            halt: None,
            traced: Traced::default(),
            kernels_since: None,
            counted_since: None,
            armed_since: None,
            last_kernel: None,
            nvml_silent: false,
            only_whole: false,
            stopped: None,
            work: Work::new(budget),
            lifecycle: Lifecycle::default(),
            trends: BTreeMap::new(),
            explained: Trend::default(),
            found: None,
            said_rules: Vec::new(),
            over,
            rows: None,
        }
    }

    /// Its id, as this machine numbers it.
    pub(super) fn pid(&self) -> u32 {
        self.identity.pid
    }

    /// Whether it could not be watched so far.
    pub(super) fn was_never_heard(&self) -> bool {
        matches!(self.link, Link::Ended(_)) && self.sizes.0 == [0; 4]
    }

    /// Names it as the system does, until its hello says more.
    pub(super) fn call(&mut self, name: &str) {
        name.clone_into(&mut Arc::make_mut(&mut self.identity).name);
    }

    /// Whether NVML's id is this process's, in whichever namespace NVML counts.
    pub(super) fn is(&self, pid: u32) -> bool {
        pid != 0 && (self.identity.pid == pid || self.identity.inner_pid == Some(pid))
    }

    /// The connection to it is over; another one may follow.
    pub(super) fn disconnect(&mut self, at: Moment) {
        self.expected = 0;
        self.traced.away(cupti_time(self.clock.as_ref(), at.wall));
        self.kernels_since = None;
        self.work.balance.disconnect();
    }

    /// The time of the newest believable record in a frame, on the host's clock; for files, which have no other.
    pub(super) fn newest_in(&self, frame: &Frame<'_>) -> Option<u64> {
        if frame.kind() != Some(FrameKind::Records) {
            return None;
        }
        let newest = super::work::newest(Runs::new(frame.body, self.sizes))?;
        Some(super::time::wall_time(self.clock.as_ref(), newest))
    }

    /// Frames before the next one are left out on purpose: they are not lost.
    pub(super) const fn left_out(&mut self) {
        self.expected = 0;
    }

    /// Records that came before what follows are not here: what is counted begins anew.
    pub(super) fn earlier(&mut self, earlier: &Earlier, at: Moment) {
        let records = [earlier.kernel, earlier.memcpy, earlier.memset, earlier.other];
        self.work.balance.earlier(records.into_iter().fold(0, u64::saturating_add));
        self.work.earlier(earlier, at);
        self.expected = 0;
        self.counted_since = Some(at);
        if let Some(armed_at) = &mut self.armed_at {
            *armed_at = at;
        }
    }

    /// Applies one frame. A damaged body is left out and said.
    pub(super) fn apply(&mut self, frame: &Frame<'_>, at: Moment, events: &mut Events) {
        let seq = frame.header.seq;
        self.heard_at = Some(at);
        let missed = if self.expected == 0 { 0 } else { seq.saturating_sub(self.expected) };
        if let Some(missed) = self.gaps.due(missed, at).filter(|_| !self.tells_of_loss(at, events)) {
            let text = format!(
                "{} frames were dropped: this viewer was too slow, or damaged data came",
                count(missed)
            );
            events.push(at.wall, Severity::Warning, Some(self.pid()), "gap", &text);
        }
        if missed > 0 {
            self.traced.lose(self.work.timeline.newest());
        }
        self.expected = seq.saturating_add(1);
        let Some(kind) = frame.kind() else { return };
        if self.body(kind, frame.body, at, events).is_err() {
            let text = format!("a damaged {kind:?} frame was left out");
            events.push(at.wall, Severity::Warning, Some(self.pid()), "damage", &text);
        }
    }

    fn body(&mut self, kind: FrameKind, body: &[u8], at: Moment, events: &mut Events) -> Result<(), Damaged> {
        match kind {
            FrameKind::Records => {
                let mut runs = Runs::new(body, self.sizes);
                self.counted_since.get_or_insert(at);
                let (newest, now) = (self.work.timeline.newest(), cupti_time(self.clock.as_ref(), at.wall));
                let until = self.known_until(at);
                if self.traced.is_losing()
                    && let Some(span) = records::span(Runs::new(body, self.sizes))
                {
                    self.work.steps.not_traced(self.traced.found(span));
                }
                self.work.records(&mut runs, at, until);
                if self.work.timeline.newest() != newest {
                    let late = now.abs_diff(self.work.timeline.newest());
                    self.drawn = (late < IN_STEP).then_some((at, late));
                }
                if let Some(fresh) = self.work.timeline.take_fresh() {
                    self.traced.came(fresh.span);
                    self.delays.add(at, now.saturating_sub(fresh.first_end));
                }
                let kernels = self.work.balance.kernel;
                if self.last_kernel.is_none_or(|(before, _)| before != kernels) && kernels > 0 {
                    self.last_kernel = Some((kernels, at));
                }
                self.say_invalid(at, events);
                if runs.is_bad() {
                    return Err(Damaged);
                }
            }
            FrameKind::Hello => self.hello(&Hello::read(body)?),
            FrameKind::Clock => self.set_clock(Clock::read(body)?, at, events),
            FrameKind::Names => names::read(body).for_each(|(id, name)| self.work.learn_name(id, name)),
            FrameKind::Kinds => self.set_kinds(&message::Kinds::read(body)?, at),
            FrameKind::State => self.set_state(&State::read(body)?, at, events),
            FrameKind::HostBuffers => {
                let buffers = HostBuffers::read(body)?;
                self.costs.heard(&buffers, at);
                self.host_buffers = Some(buffers);
            }
            FrameKind::Pools => {
                self.pools = pools::read(body).take(MAX_POOLS).map(|pool| read_pool(&pool)).collect();
            }
            FrameKind::Loss => {
                let loss = Loss::read(body)?;
                if !self.only_whole || records::is_whole(&loss) {
                    self.heard_loss(loss, at, events);
                }
            }
            FrameKind::Sampling => self.work.heard_sampling(&message::Sampling::read(body)?),
            FrameKind::Notice => {
                let notice = Notice::read(body)?;
                self.notice(&notice, events);
            }
            FrameKind::Lifecycle => {
                for event in lifecycle::read(body) {
                    self.lifecycle.apply(&event, self.work.graphs.launches());
                }
            }
            FrameKind::Observers => self.lifecycle.heard(Observers::read(body)?, at.wall),
            // Device samples belong to the machine, replies to who asked, and the link says when a stream ends.
            FrameKind::DeviceSample
            | FrameKind::Goodbye
            | FrameKind::Reply
            | FrameKind::RawBuffer
            | FrameKind::Request
            // What viewers say does not come from a process.
            | FrameKind::Watched
            | FrameKind::Link
            | FrameKind::Halt
            | FrameKind::DeviceNote
            | FrameKind::Earlier
            | FrameKind::Closed => {}
        }
        Ok(())
    }

    /// Takes in a clock pair; a clock that has jumped since the last one ends a session of work.
    fn set_clock(&mut self, pair: Clock, at: Moment, events: &mut Events) {
        let before = self.clock.replace(pair);
        let domain = Domain::of(&pair);
        if before.is_none_or(|before| Domain::of(&before) != domain) {
            let off = pair.realtime.abs_diff(pair.cupti) as f64 / SECOND as f64;
            let text = match domain {
                Domain::Realtime => String::new(),
                Domain::LessUptime => format!(
                    "CUPTI's clock is {}: {off:.2} s off; two clocks were mixed up, times are mapped",
                    domain.name()
                ),
                _ => format!("CUPTI's clock is {}; times are mapped to realtime", domain.name()),
            };
            if !text.is_empty() {
                let wrong = matches!(domain, Domain::LessUptime | Domain::Other);
                let severity = if wrong { Severity::Warning } else { Severity::Info };
                events.push(at.wall, severity, Some(self.pid()), "clock", &text);
            }
        }
        let Some(before) = before else { return };
        let jump = Jump::between(&before, &pair);
        if jump.is_none() {
            return;
        }
        if jump.cupti != 0 {
            self.work.streams.jump(&pair, jump.cupti);
        }
        self.jumps = self.jumps.saturating_add(1);
        events.push(at.wall, Severity::Warning, Some(self.pid()), "clock", &jump_in_words(&jump));
    }

    fn hello(&mut self, hello: &Hello<'_>) {
        self.sizes = hello.sizes;
        let fields = &hello.fields;
        if fields.launches == 1 {
            self.work.set_launches_come(true);
        }
        let known = self.identity.pid;
        let pid = if known == 0 { fields.pid } else { known };
        let text = |bytes: &[u8]| (!bytes.is_empty()).then(|| safe(bytes));
        let list = |bytes: &[u8]| -> Vec<String> {
            bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty()).map(safe).collect()
        };
        let variable = |text: String| text.split_once('=').map(|(name, value)| (name.into(), value.into()));
        self.identity = Arc::new(Identity {
            pid,
            inner_pid: (fields.pid != pid && fields.pid != 0).then_some(fields.pid),
            start_time: fields.start_time,
            uid: fields.uid,
            name: safe(fields.name),
            command: list(fields.command).join(" "),
            container: text(fields.container),
            pod: text(fields.pod),
            mig: list(fields.mig),
            environment: list(fields.environment).into_iter().filter_map(variable).collect(),
            shim_version: safe(fields.shim_version),
            read_only: fields.read_only == 1,
            early: fields.early == 1,
        });
        self.cupti = fields.cupti_version.and_then(|version| u32::try_from(version).ok()).map(|version| {
            let version = CuptiVersion(version);
            Cupti {
                version,
                path: safe(fields.cupti_path),
                interface: fields.cupti_interface,
                verdict: version.verdict(),
                reason: version.reason(),
            }
        });
    }

    fn set_kinds(&mut self, kinds: &message::Kinds<'_>, at: Moment) {
        let enabled = KindSet(kinds.enabled);
        self.traced.on(enabled, cupti_time(self.clock.as_ref(), at.wall));
        self.kernels_since = enabled.has(Kind::Kernel).then(|| self.kernels_since.unwrap_or(at));
        let calls = KindSet::EMPTY.with(Kind::Runtime).with(Kind::Driver);
        self.work.set_launches_come(kinds.enabled & calls.0 != 0);
        self.heard.kinds = true;
        self.kinds = Kinds {
            enabled,
            asked: KindSet(kinds.asked),
            refused: KindSet(kinds.refused),
            error: (kinds.error != 0).then_some(kinds.error),
            by: safe(kinds.by),
        };
    }

    /// Whether the last whole second tells of the kernels of a second: not in windows, nor once CUPTI has no buffer left
    /// for times.
    fn knows_rates(&self, at: Moment) -> bool {
        let since = self.counted_since.max(self.kernels_since);
        let told = self.kernels_since.is_some() || !self.heard.kinds;
        let whole = !self.is_full() && !self.work.sampling.hides(Kind::Kernel);
        let comes = told && whole && self.state != StateCode::Silent;
        comes && since.is_some_and(|since| at.second() > since.second() + 1)
    }

    /// Whether CUPTI has no device buffer left in a context.
    fn is_full(&self) -> bool {
        self.pools.iter().any(|pool| pool.state == PoolState::Exhausted)
    }

    /// Whether it is reachable and has yet to say what came of arming it.
    pub(super) fn is_arming(&self) -> bool {
        let before = matches!(self.state, StateCode::Loaded | StateCode::Arming);
        before && self.link == Link::Up
    }

    /// Whether it is known that nothing of its work could be seen so far: it was not reached, or its shim never had CUPTI.
    fn is_unseen(&self) -> bool {
        let told = self.heard.state || self.was_never_heard();
        told && !self.collected && !self.work.balance.any()
    }

    /// Whether silence begins that only NVML tells of.
    pub(super) fn begins_silence(&mut self, silent: Option<String>) -> Option<String> {
        let before = std::mem::replace(&mut self.nvml_silent, silent.is_some());
        silent.filter(|_| !before)
    }

    /// When it was first seen armed.
    pub(super) const fn armed_at(&self) -> Option<Moment> {
        self.armed_at
    }

    /// From now on takes only counts that will agree with what comes.
    pub(super) const fn only_whole_counts(&mut self) {
        self.only_whole = true;
    }

    /// Nothing more comes, though it goes on.
    pub(super) const fn stop(&mut self, at: Moment) {
        self.stopped = Some(at);
    }

    /// When it was cut off.
    pub(super) const fn stopped(&self) -> Option<Moment> {
        self.stopped
    }

    /// Whether the shim's last count agrees with what came here.
    pub(super) fn balances(&self) -> bool {
        self.work.balance.records(0.0).balances()
    }

    /// Takes in what NVML says of its memory on a device.
    pub(super) fn used_memory(&mut self, device: u32, used: u64, at: Moment) {
        if self.trends.len() < MAX_DEVICES || self.trends.contains_key(&device) {
            self.trends.entry(device).or_default().add(at.wall, used);
        }
        let allocated = self.work.account.allocated();
        let told = Told { allocated, graphs: &self.lifecycle.memory, pools: &self.pools };
        if let Some(explained) = told.explained() {
            self.explained.add(at.wall, explained);
        }
    }
}
