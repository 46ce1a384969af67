//! The device buffer pools as the I/O thread models them from the records that pass.

use crate::room;
use crate::shared::{Note, Shim, Status};
use crate::text::Text;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::KindSet;
use gtop_protocol::calls::{self, Call};
use gtop_protocol::cupti::{CuptiVersion, Verdict};
use gtop_protocol::frame::{RecordSizes, Runs};
use gtop_protocol::lifecycle::{Event, MADE_FOR_A_NODE, What};
use gtop_protocol::message::{LeakCause, Pool, PoolState, Severity, pools};
use gtop_protocol::pool::{Graph, MAX_CONTEXTS, Model};
use gtop_protocol::record::{self, Family};
use gtop_protocol::wire::Writer;

/// Graphs told apart.
const GRAPHS: usize = 1024;
/// Bytes of the longest pools frame.
const MOST: usize = MAX_CONTEXTS * pools::MAX_ONE;

/// The model, once a CUPTI is known, and what was last said of it.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    model: Option<Model<Vec<Graph>>>,
    body: Vec<u8>,
    /// Context, state and doubt of each pool when it was last told.
    told: [(u32, (u8, u8)); MAX_CONTEXTS],
    notes: [Option<Note>; MAX_CONTEXTS],
    kinds: KindSet,
    /// How to get a sound CUPTI.
    cure: &'static str,
}

impl Pools {
    /// The body of the pools frame; empty while there is nothing to say.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Takes in the kinds as they are now.
    pub(crate) fn kinds(&mut self, shim: &Shim, status: &Status) {
        let Some(version) = status.cupti_version.map(CuptiVersion) else { return };
        self.cure = version.cure();
        if self.model.is_none() {
            let Some(graphs) = room::filled(GRAPHS, Graph::default()) else { return };
            // A version nobody measured is watched as if it were defective.
            let mut model = Model::new(graphs, version.verdict() != Verdict::Sound);
            if let Some(limit) = shim.config.pool_limit {
                model.set_limit(limit, !shim.config.early);
            }
            self.model = Some(model);
        }
        if let Some(model) = &mut self.model
            && self.kinds != status.kinds.enabled
        {
            self.kinds = status.kinds.enabled;
            model.kinds_changed(self.kinds, crate::sys::realtime());
        }
    }

    /// Takes in the records of one frame.
    pub(crate) fn take_in(&mut self, body: &[u8], now: u64) {
        let Some(model) = &mut self.model else { return };
        for run in Runs::new(body, RecordSizes::OURS) {
            match run.family() {
                Some(Family::Kernel) => run.records().for_each(|one| model.kernel(&record::read(one), now)),
                Some(Family::Copy) => run.records().for_each(|one| model.copy(&record::read(one), now)),
                Some(Family::Memset) => run.records().for_each(|one| model.memset(&record::read(one), now)),
                Some(Family::Other) => run.records().for_each(|one| model.other(&record::read(one), now)),
                None => {}
            }
        }
    }

    /// Takes in what callbacks told: which nodes graphs have, and so executable graphs before their first replay.
    pub(crate) fn hear(&mut self, event: &Event) {
        let Some(model) = &mut self.model else { return };
        match What::from_wire(event.what) {
            Some(What::ExecCreated) => model.exec(event.id.get(), event.node.get() as u32),
            Some(What::GraphCreated) if event.detail.get() == MADE_FOR_A_NODE => {
                model.made_inside(event.thread.get(), event.id.get());
            }
            Some(What::GraphCloned) => {
                model.cloned(event.thread.get(), event.id.get(), event.node.get() as u32);
            }
            Some(What::GraphDestroyed) => model.graph_gone(event.id.get()),
            Some(What::Nodes) => {
                let (thread, node) = (event.thread.get(), event.node.get());
                model.node_added(thread, event.id.get(), node, event.detail.get());
                let within = calls::by_code(event.code.get()).and_then(Call::copies_within_device);
                model.node(event.id.get(), event.node.get(), event.detail.get(), within);
            }
            _ => {}
        }
    }

    /// Looks at the model; whether there is something new to tell.
    pub(crate) fn tick(&mut self, shim: &Shim, now: u64) -> bool {
        let Some(model) = &mut self.model else { return false };
        model.tick(now);
        shim.pool_leaks.store(model.leaks(), Relaxed);
        let mut buffer = [0; MOST];
        let mut writer = Writer::new(&mut buffer);
        let mut exhausted = false;
        self.notes = [None; MAX_CONTEXTS];
        for ((pool, told), note) in model.pools().zip(&mut self.told).zip(&mut self.notes) {
            let _ = pools::write_one(&mut writer, &pool);
            exhausted |= pool.state == PoolState::Exhausted as u8;
            let state = (pool.state, pool.in_doubt);
            if *told != (pool.context, state) {
                *told = (pool.context, state);
                *note = say(&pool, self.cure);
            }
        }
        shim.pool_exhausted.store(exhausted, Relaxed);
        let len = writer.len();
        let body = buffer.get(..len).unwrap_or_default();
        if self.body == body {
            return false;
        }
        let before = self.body.len();
        let new = room::extend(&mut self.body, body);
        self.body.drain(..if new { before } else { 0 });
        new
    }

    /// What the last look has to tell people.
    pub(crate) fn notes(&mut self) -> [Option<Note>; MAX_CONTEXTS] {
        core::mem::replace(&mut self.notes, [None; MAX_CONTEXTS])
    }
}

/// What alone helps once it has begun, before how to get a sound CUPTI.
const RESTART: &str = "Only a restart of the process helps: keep memcpy and memset on from the start, or";

fn say(pool: &Pool, cure: &str) -> Option<Note> {
    let (context, limit) = (pool.context, pool.limit);
    match PoolState::from_wire(pool.state) {
        PoolState::Leaking => {
            let why = match pool.cause {
                cause if cause == LeakCause::KindOff as u8 => " since memcpy or memset is off",
                cause if cause == LeakCause::AllOff as u8 => " since all kinds were off",
                _ => "",
            };
            let graph: Text<32> = match pool.graph {
                0 => Text::EMPTY,
                graph => Text::new(format_args!(" (graph {graph})")),
            };
            let left: Text<32> = pool.exhausts_in.map_or(Text::EMPTY, |ns| {
                Text::new(format_args!(", full in about {} s", ns / 1_000_000_000))
            });
            Some(Note::new(
                Severity::Warning,
                "pool",
                format_args!(
                    "context {context} leaks device buffers{why}{graph}: of {limit} none comes back any more{left}. \
                     {RESTART} {cure}"
                ),
            ))
        }
        PoolState::Exhausted => Some(Note::new(
            Severity::Alarm,
            "pool",
            format_args!(
                "context {context} has used up its {limit} device buffers: graph kernels yield no records and eager \
                 ones no times. {RESTART} {cure}"
            ),
        )),
        PoolState::Unknown if pool.in_doubt == 1 => Some(Note::new(
            Severity::Warning,
            "pool",
            format_args!(
                "context {context} may leak device buffers since memcpy or memset is off: graph {} has nodes that are not \
                 traced, and what they are is not known. Copies from and to the host do not leak; whether these do shows \
                 with overhead records, or once memcpy and memset are on",
                pool.graph
            ),
        )),
        PoolState::Safe | PoolState::Unknown => None,
    }
}
