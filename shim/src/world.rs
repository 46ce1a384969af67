//! What the state frames of every connection are composed from.

use crate::buffers::BUFFER_LEN;
use crate::collect::Collector;
use crate::hello::Identity;
use crate::shared::{Shim, Status};
use crate::sys;
use core::sync::atomic::Ordering::Relaxed;
use gtop_protocol::message::{Hello, HelloFields, HostBuffers, Kinds, Loss, State};

/// What state is composed from.
pub(crate) struct World<'a> {
    pub(crate) shim: &'static Shim,
    pub(crate) identity: &'a Identity,
    pub(crate) status: &'a Status,
    /// Ids of the names, in the order they became readable.
    pub(crate) named: &'a [u32],
    pub(crate) pools: &'a [u8],
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
            cupti_interface: u8::from(status.cupti_version.is_some()),
            read_only: u8::from(self.shim.config.read_only),
            early: u8::from(self.shim.config.early),
            boot_id: &identity.boot_id,
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
        }
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
