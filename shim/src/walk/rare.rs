//! The kinds that are off unless someone asks for them, which all become one record.

use super::Walker;
use super::copies::narrow;
use super::run::{Run, view};
use crate::layout;
use crate::names::NameSource;
use crate::write::{Sink, Writer};
use gtop_protocol::kind::Kind;
use gtop_protocol::record::{self, Family, NO_DEVICE};
use gtop_protocol::validity::classify;
use zerocopy::IntoBytes;
use zerocopy::byteorder::little_endian::U32;

impl Walker<'_> {
    /// Writes a run of a kind that is off unless someone asks and gives how many there are; `None` for kinds not known
    /// here.
    #[inline(never)]
    pub(super) fn rare<S: Sink>(
        &mut self,
        kind: u32,
        run: &Run<'_>,
        source: &impl NameSource,
        out: &mut Writer<'_, S>,
        launches: &mut u64,
    ) -> Option<u64> {
        let asked = Kind::from_cupti(kind)?;
        let mut count = 0u64;
        for bytes in run.records() {
            let mut record = self.other(asked, bytes, source)?;
            if matches!(asked, Kind::Runtime | Kind::Driver) && is_launch(asked, record.code.get()) {
                *launches = launches.wrapping_add(1);
            }
            record.cupti_kind = kind.into();
            record.validity = classify(record.start.get(), record.end.get(), self.bounds) as u8;
            record.notes = self.unasked(asked);
            if record.write_to_prefix(out.room::<record::Other>(Family::Other)).is_ok() {
                out.wrote::<record::Other>(size_of::<record::Other>());
            }
            count = count.wrapping_add(1);
        }
        Some(count)
    }

    fn other(&mut self, kind: Kind, bytes: &[u8], names: &impl NameSource) -> Option<record::Other> {
        let record = record::Other { device: NO_DEVICE.into(), ..record::Other::default() };
        Some(match kind {
            Kind::Runtime | Kind::Driver => {
                let raw: &layout::Api = view(bytes)?;
                record::Other {
                    start: raw.start,
                    end: raw.end,
                    correlation: self.extend(raw.correlation.get()).into(),
                    value: u64::from(raw.returned.get()).into(),
                    code: raw.cbid,
                    thread: raw.thread,
                    ..record
                }
            }
            Kind::Overhead => {
                let raw: &layout::Overhead = view(bytes)?;
                let [device, context, stream] = raw.object;
                // `CUpti_ActivityObjectKind`: 2 thread, 3 device, 4 context, 5 stream.
                let object = raw.object_kind.get();
                let known =
                    |from: u32, value: U32| if (from..=5).contains(&object) { value } else { U32::ZERO };
                record::Other {
                    start: raw.start,
                    end: raw.end,
                    code: raw.overhead,
                    device: if (3..=5).contains(&object) { narrow(device) } else { NO_DEVICE.into() },
                    context: known(4, context),
                    stream: known(5, stream),
                    thread: if object == 2 { context } else { U32::ZERO },
                    ..record
                }
            }
            Kind::Sync => {
                let raw: &layout::Sync = view(bytes)?;
                let newer: Option<&layout::Sync2> = if self.has_sync2 { view(bytes) } else { None };
                record::Other {
                    start: raw.start,
                    end: raw.end,
                    correlation: self.extend(raw.correlation.get()).into(),
                    value: newer.map_or(0, |sync| u64::from(sync.returned.get())).into(),
                    address: u64::from(raw.event.get()).into(),
                    code: raw.what,
                    context: raw.context,
                    stream: raw.stream,
                    ..record
                }
            }
            Kind::Memory => {
                let raw: &layout::Memory = view(bytes)?;
                let source = match (&mut self.paths, view::<layout::Memory4>(bytes)) {
                    (Some(paths), Some(newer)) => paths.id(newer.source.get(), names),
                    _ => 0,
                };
                record::Other {
                    start: raw.timestamp,
                    end: raw.timestamp,
                    correlation: self.extend(raw.correlation.get()).into(),
                    value: raw.bytes,
                    address: raw.address,
                    code: raw.operation,
                    context: raw.context,
                    stream: raw.stream,
                    thread: raw.memory_kind,
                    device: narrow(raw.device),
                    source: source.into(),
                    pool: view::<layout::PooledMemory>(bytes).map_or(0, |memory| memory.pool.get()).into(),
                    ..record
                }
            }
            Kind::Kernel | Kind::Memcpy | Kind::Memset => return None,
        })
    }
}

/// Whether an API call launches a kernel or a graph (`cupti_runtime_cbid.h`, `cupti_driver_cbid.h`; values never
/// changed).
const fn is_launch(kind: Kind, cbid: u32) -> bool {
    match kind {
        Kind::Runtime => matches!(cbid, 211 | 214 | 311 | 312 | 430 | 431 | 505 | 506),
        _ => matches!(cbid, 307 | 442 | 652 | 653 | 477 | 478 | 480 | 514 | 515 | 819),
    }
}
