//! What the state frames of every connection are composed from.

use crate::budget::RECENT;
use crate::buffers::BUFFER_LEN;
use crate::collect::Collector;
use crate::hello::Identity;
use crate::observe::{self, EventLog};
use crate::shared::{Shim, Status};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::message::{
    Hello, HelloFields, HostBuffers, Kinds, Loss, Observers, Sampling, State, windows,
};
use gtop_protocol::wire::{Full, Writer};

/// What state is composed from.
pub(crate) struct World<'a> {
    pub(crate) shim: &'static Shim,
    pub(crate) identity: &'a Identity,
    pub(crate) status: &'a Status,
    /// Ids of the names, in the order they became readable.
    pub(crate) named: &'a [u32],
    pub(crate) pools: &'a [u8],
    pub(crate) events: &'a EventLog,
    pub(crate) watchers: u32,
    /// Records of all frames taken out of the queue so far.
    pub(crate) popped: u64,
}

impl World<'_> {
    pub(crate) fn collector(&self) -> Option<&'static Collector> {
        self.shim.collector.get().copied()
    }

    /// Who this is.
    pub(crate) fn hello(&self) -> Hello<'_> {
        let (identity, status) = (self.identity, self.status);
        Hello::new(HelloFields {
            pid: self.shim.pid,
            uid: sys::uid(),
            start_time: identity.start_time,
            name: &identity.name,
            command: &identity.command,
            cgroup: &identity.cgroup,
            container: &identity.container,
            pod: &identity.pod,
            mig: &identity.mig,
            environment: &identity.environment,
            shim_version: env!("CARGO_PKG_VERSION").as_bytes(),
            cupti_version: status.cupti_version.map(u64::from),
            cupti_path: status.cupti_path.as_bytes(),
            cupti_interface: status.cupti_interface,
            read_only: u8::from(self.shim.config.read_only),
            early: u8::from(self.shim.config.early),
            boot_id: &identity.boot_id,
            // Here the kinds say so.
            launches: 0,
        })
    }

    /// The state.
    pub(crate) fn state(&self) -> State<'_> {
        let status = self.status;
        State {
            state: status.state as u8,
            reason: status.reason as u16,
            error: status.error,
            detail: status.detail.as_bytes(),
            since: status.since,
            watchers: self.watchers,
            first_call_ns: status.first_call_ns,
            armed_at: status.armed_at,
            held: u8::from(status.held),
            tainted: u8::from(status.tainted),
            subscribed: u8::from(status.subscribed),
        }
    }

    /// The kinds.
    pub(crate) fn kinds(&self) -> Kinds<'_> {
        let kinds = self.status.kinds;
        Kinds {
            enabled: kinds.enabled.0,
            asked: kinds.asked.0,
            refused: kinds.refused.0,
            error: kinds.error,
            by: self.status.by.as_bytes(),
        }
    }

    /// How the process is traced in windows.
    pub(crate) fn sampling(&self, w: &mut Writer<'_>) -> Result<(), Full> {
        let status = self.status;
        let mut bytes = [0; RECENT * 16];
        let mut recent = Writer::new(&mut bytes);
        let Some(budget) = &status.budget else {
            return Sampling { time: status.sampled_at, ..Sampling::default() }.write(w);
        };
        for (begin, end) in budget.recent() {
            windows::write_one(&mut recent, begin, end)?;
        }
        let len = recent.len();
        let (price, high) = budget.price();
        let measured = budget.measured;
        let sampling = Sampling {
            budget_ppm: budget.ppm,
            windows: budget.windows,
            time: status.sampled_at,
            between: status.between.0,
            relief: measured.relief as u8,
            basis: measured.basis as u8,
            loss_ppm: measured.loss.map(|(loss, _)| (loss * 1e6) as u64),
            price_ppm: price,
            price_high_ppm: Some(high),
            window_ns: budget.window_ns,
            period_ns: budget.period_ns,
            recent: bytes.get(..len).unwrap_or_default(),
        };
        sampling.write(w)
    }

    /// The host buffers now.
    pub(crate) fn host_buffers(&self) -> HostBuffers {
        let Some(collector) = self.collector() else { return HostBuffers::default() };
        let buffers = &collector.buffers;
        HostBuffers {
            size: BUFFER_LEN as u64,
            outstanding: buffers.outstanding(),
            completed: buffers.completed.load(Relaxed),
            bytes: buffers.touched_bytes() as u64,
            discarded: buffers.exhausted.load(Relaxed),
            callback_ns: collector.counters.callback_ns.load(Relaxed),
            cpu_ns: self.shim.cpu(),
            memory: self.shim.memory(),
            queued_frames: collector.frames.queued() as u64,
            raw_copied: collector.copies.copied.load(Relaxed),
            raw_missed: collector.copies.missed.load(Relaxed),
            beat_ms: 0,
        }
    }

    /// What the observers have counted; `None` unless they were started.
    pub(crate) fn observers(&self) -> Option<Observers> {
        observe::current().map(|observe| observe.counted(self.events.missing()))
    }

    /// The balance as far as it is the same for everyone.
    pub(crate) fn loss(&self) -> Loss {
        let Some(collector) = self.collector() else { return Loss::default() };
        let counters = &collector.counters;
        Loss {
            walked: counters.walked.load(Relaxed),
            framed: counters.framed.load(Relaxed),
            queue_full: counters.queue_full.load(Relaxed),
            unknown_kind: counters.unknown_kind.load(Relaxed),
            unknown_bytes: counters.unknown_bytes.load(Relaxed),
            discarded: counters.discarded.load(Relaxed),
            cupti_dropped: counters.cupti_dropped.load(Relaxed),
            kernel: counters.kernel.load(Relaxed),
            memcpy: counters.memcpy.load(Relaxed),
            memset: counters.memset.load(Relaxed),
            other: counters.other.load(Relaxed),
            ..Loss::default()
        }
    }
}
