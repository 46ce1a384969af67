//! A subscription of CUPTI and the calls that belong to it. CUPTI has two interfaces, which must not mix within a
//! process: v1, for one subscriber, which most tools use, and v2, whose calls name their subscriber and where the first
//! says whether there may be others.

use super::{
    ATTR_ALLOCATION_SOURCE, ATTR_POOL_LIMIT, Completed, CompletedV2, CuptiError, NOT_SUPPORTED, NextRecord,
    NextRecordV2, Requested, RequestedV2, SubscribeV2, Subscriber, SubscriberParams, Table, V2, check,
};
use crate::observe;
use crate::text::Text;
use core::ffi::c_void;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use core::sync::atomic::Ordering::{Acquire, Release};
use gtop_protocol::cupti::CuptiVersion;

/// The first version whose `cuptiSubscribe_v2` is taken to name who holds CUPTI (`cupti_callbacks.h`).
const NAMES_HOLDER: CuptiVersion = CuptiVersion(130_000);
/// Bytes a holder's name may take, the least CUPTI accepts.
const HOLDER_LEN: usize = 64;

/// Which interface to subscribe through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// v2, where CUPTI has it.
    pub(crate) v2: bool,
    /// Whether the driver bears several subscribers: v2 then lets others in, and stands in for v1 beside a v2 user.
    pub(crate) several: bool,
}

/// A subscription that was not had.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub(crate) call: &'static str,
    pub(crate) error: CuptiError,
}

/// A subscription, until it is given back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session {
    table: Table,
    subscriber: Subscriber,
    v2: Option<V2>,
    several: bool,
    beside: Text<64>,
}

/// What CUPTI calls for buffers, through either interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Callbacks {
    pub(crate) v1: (Requested, Completed),
    pub(crate) v2: (RequestedV2, CompletedV2),
}

/// How CUPTI steps from record to record.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stepping {
    V1(NextRecord),
    V2(NextRecordV2, Subscriber),
}

impl Stepping {
    /// `cuptiActivityGetNextRecord`, or its counterpart.
    ///
    /// # Safety
    /// So many bytes must be readable at `buffer`, and `record` hold null or a record in them that this stepped onto.
    #[inline]
    pub(crate) unsafe fn next(self, buffer: *mut u8, valid: usize, record: &mut *mut u8) -> u32 {
        // SAFETY: by this function's own promise; the subscription lives while its buffers come.
        unsafe {
            match self {
                Self::V1(next) => next(buffer, valid, record),
                Self::V2(next, subscriber) => next(subscriber.handle(), buffer, valid, record),
            }
        }
    }
}

/// The ways to step of one CUPTI.
#[derive(Debug)]
pub(crate) struct Steps {
    v1: NextRecord,
    v2: Option<NextRecordV2>,
    /// Who subscribed through v2 last; null is nobody.
    subscriber: AtomicPtr<c_void>,
}

impl Steps {
    pub(crate) const fn of(table: &Table) -> Self {
        Self { v1: table.next_record, v2: table.next_record_v2, subscriber: AtomicPtr::new(null_mut()) }
    }

    /// Those of a buffer that came through v1.
    pub(crate) const fn v1(&self) -> Stepping {
        Stepping::V1(self.v1)
    }

    /// Those of a buffer that came through v2.
    pub(crate) fn v2(&self) -> Option<Stepping> {
        let subscriber = Subscriber(self.subscriber.load(Acquire));
        self.v2.filter(|_| !subscriber.0.is_null()).map(|next| Stepping::V2(next, subscriber))
    }

    /// Buffers come to this subscription from now on.
    pub(crate) fn serve(&self, session: &Session) {
        let subscriber = session.v2.map_or(null_mut(), |_| session.handle());
        self.subscriber.store(subscriber, Release);
    }
}

/// Subscribes as wished, with the observers' callback, of which nothing is enabled yet. Where another tool holds CUPTI,
/// `holder` comes to say what that calls itself, asked once each time it is found held; empty is not known.
pub(crate) fn subscribe(
    table: &Table,
    version: CuptiVersion,
    wish: Wish,
    holder: &mut Option<Text<64>>,
) -> Result<Session, Refused> {
    let v2 = table.v2(version);
    if let Some(v2) = v2.filter(|_| wish.v2) {
        return by_v2(table, v2, wish.several, holder);
    }
    let mut subscriber = null_mut();
    // SAFETY: writes one handle; the callback lives as long as the library.
    let result = unsafe { (table.subscribe)(&raw mut subscriber, observe::callback, null_mut()) };
    let Err(error) = check(result) else {
        let subscriber = Subscriber(subscriber);
        return Ok(Session { table: *table, subscriber, v2: None, several: false, beside: Text::EMPTY });
    };
    let refused = Refused { call: "cuptiSubscribe", error };
    if !error.is_busy() {
        return Err(refused);
    }
    if let Some(v2) = v2.filter(|_| wish.several) {
        let (result, name) = try_v2(v2.subscribe, Some(true));
        *holder = Some(name);
        let Ok(subscriber) = result else { return Err(refused) };
        let session = Session { table: *table, subscriber, v2: Some(v2), several: true, beside: name };
        if !name.is_empty() {
            return Ok(session);
        }
        // Whoever held it let go in between. Version 1 is what is wanted, the next time.
        let _ = session.unsubscribe();
    } else if let (None, Some(by_name)) =
        (holder.as_ref(), table.subscribe_v2.filter(|_| version >= NAMES_HOLDER))
    {
        let (result, name) = try_v2(by_name, None);
        if let (Ok(subscriber), Some(unsubscribe)) = (result, table.unsubscribe) {
            // SAFETY: as above, and the handle of a subscription that was not ended yet.
            unsafe { unsubscribe(subscriber.handle()) };
        }
        *holder = Some(name);
    }
    Err(refused)
}

fn by_v2(table: &Table, v2: V2, several: bool, holder: &mut Option<Text<64>>) -> Result<Session, Refused> {
    let session = |subscriber, several, beside| {
        let beside = if several { beside } else { Text::EMPTY };
        Session { table: *table, subscriber, v2: Some(v2), several, beside }
    };
    let (result, name) = try_v2(v2.subscribe, Some(several));
    let error = match result {
        Ok(subscriber) => return Ok(session(subscriber, several, name)),
        Err(error) => error,
    };
    if error.is_busy() {
        *holder = Some(name);
    } else if several && let (Ok(subscriber), name) = try_v2(v2.subscribe, Some(false)) {
        return Ok(session(subscriber, false, name));
    }
    Err(Refused { call: "cuptiSubscribe_v2", error })
}

/// Calls `cuptiSubscribe_v2`: the handle, and the name of who was there before. Whether others are let in is a field
/// from 13.2 on.
fn try_v2(subscribe: SubscribeV2, several: Option<bool>) -> (Result<Subscriber, CuptiError>, Text<64>) {
    let mut name = [0u8; HOLDER_LEN];
    let mut params = SubscriberParams {
        size: several.map_or(offset_of!(SubscriberParams, several), |_| size_of::<SubscriberParams>()),
        name: c"gtop".as_ptr(),
        old_name: name.as_mut_ptr().cast(),
        old_name_len: HOLDER_LEN,
        several: u8::from(several == Some(true)),
        padding: [0; 7],
    };
    let mut subscriber = null_mut();
    // SAFETY: writes one handle, and a name within the length given; the structure says how long it is.
    let result = unsafe { subscribe(&raw mut subscriber, observe::callback, null_mut(), &raw mut params) };
    let len = name.iter().position(|byte| *byte == 0).unwrap_or(HOLDER_LEN);
    (check(result).map(|()| Subscriber(subscriber)), Text::from_bytes(name.get(..len).unwrap_or_default()))
}

impl Session {
    /// 1 or 2.
    pub(crate) const fn interface(&self) -> u8 {
        if self.v2.is_some() { 2 } else { 1 }
    }

    /// The handle CUPTI gave.
    pub(crate) const fn handle(&self) -> *mut c_void {
        self.subscriber.handle()
    }

    /// The subscriber that was there before; empty where there was none.
    pub(crate) const fn beside(&self) -> &Text<64> {
        &self.beside
    }

    /// `cuptiUnsubscribe`. CUPTI must hold none of our buffers any more: whoever comes next would get them.
    pub(crate) fn unsubscribe(&self) -> Result<(), CuptiError> {
        let unsubscribe = self.table.unsubscribe.ok_or(NOT_SUPPORTED)?;
        // SAFETY: the handle of a subscription that was not ended yet.
        check(unsafe { unsubscribe(self.handle()) })
    }

    /// `cuptiActivityRegisterCallbacks`.
    pub(crate) fn register(&self, callbacks: &Callbacks) -> Result<(), CuptiError> {
        // SAFETY: the functions live as long as the library.
        check(unsafe {
            match self.v2 {
                None => (self.table.register)(callbacks.v1.0, callbacks.v1.1),
                Some(v2) => (v2.register)(self.handle(), callbacks.v2.0, callbacks.v2.1),
            }
        })
    }

    /// `cuptiActivityEnable`.
    pub(crate) fn enable(&self, kind: u32) -> Result<(), CuptiError> {
        // SAFETY: a number, and for v2 no selection of fields.
        check(unsafe {
            match self.v2 {
                None => (self.table.enable)(kind),
                Some(v2) => (v2.enable)(self.handle(), kind, null_mut()),
            }
        })
    }

    /// `cuptiActivityDisable`.
    pub(crate) fn disable(&self, kind: u32) -> Result<(), CuptiError> {
        // SAFETY: as above.
        check(unsafe {
            match self.v2 {
                None => (self.table.disable)(kind),
                Some(v2) => (v2.disable)(self.handle(), kind, null_mut()),
            }
        })
    }

    /// `cuptiActivityFlushAll`, which both interfaces have in common; forced takes unfinished records too. It is for all
    /// subscribers: with the kinds of ours off, it is forced only if no other has any on.
    pub(crate) fn flush(&self, forced: bool) -> Result<(), CuptiError> {
        let forced = forced && !(self.several && self.traced());
        // SAFETY: a number.
        check(unsafe { (self.table.flush)(u32::from(forced)) })
    }

    /// Whether any subscriber has a kind on. Where CUPTI does not say, it is taken to be so.
    fn traced(&self) -> bool {
        let mut count = 0;
        self.table.kinds_on.is_none_or(|kinds_on| {
            // SAFETY: no subscriber asks for all together, no buffer for their number, which is written.
            let result = unsafe { kinds_on(null_mut(), null_mut(), null_mut(), &raw mut count) };
            result != 0 || count > 0
        })
    }

    /// `cuptiGetTimestamp`, nanoseconds.
    #[must_use]
    pub(crate) fn timestamp(&self) -> Option<u64> {
        let mut time = 0;
        // SAFETY: writes one u64.
        let result = unsafe {
            match self.v2 {
                None => (self.table.timestamp?)(&raw mut time),
                Some(_) => (self.table.timestamp_v2?)(self.handle(), &raw mut time),
            }
        };
        check(result).ok().map(|()| time)
    }

    /// `cuptiActivityGetNumDroppedRecords`: records dropped since it was last asked.
    #[must_use]
    pub(crate) fn dropped(&self) -> Option<u64> {
        let mut count = 0;
        // SAFETY: writes one size_t; no context and stream 0 ask for the process's queue.
        let result = unsafe {
            match self.v2 {
                None => (self.table.dropped?)(null_mut(), 0, &raw mut count),
                Some(_) => (self.table.dropped_v2?)(self.handle(), null_mut(), 0, &raw mut count),
            }
        };
        check(result).ok().map(|()| count as u64)
    }

    /// Whether memory records say which library asked for the memory (`cuptiActivityEnableAllocationSource`, 12.6).
    pub(crate) fn track_sources(&self, on: bool) -> Result<(), CuptiError> {
        let (mut size, mut value) = (size_of::<u8>(), u8::from(on));
        // SAFETY: a byte; the attribute is one, and `size` says so.
        check(unsafe {
            if self.v2.is_none() {
                (self.table.allocation_source.ok_or(NOT_SUPPORTED)?)(value)
            } else {
                let set = self.table.set_attribute_v2.ok_or(NOT_SUPPORTED)?;
                set(self.handle(), ATTR_ALLOCATION_SOURCE, &raw mut size, (&raw mut value).cast())
            }
        })
    }

    /// Sets how many device buffers a context created from now on may have.
    pub(crate) fn set_pool_limit(&self, limit: usize) -> Result<(), CuptiError> {
        let (mut size, mut value) = (size_of::<usize>(), limit);
        let (size, value) = (&raw mut size, (&raw mut value).cast());
        // SAFETY: the attribute is a size_t, and `size` says so.
        check(unsafe {
            if self.v2.is_none() {
                (self.table.set_attribute.ok_or(NOT_SUPPORTED)?)(ATTR_POOL_LIMIT, size, value)
            } else {
                let set = self.table.set_attribute_v2.ok_or(NOT_SUPPORTED)?;
                set(self.handle(), ATTR_POOL_LIMIT, size, value)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::cupti::sys;

    #[test]
    fn attributes_are_those_of_the_header() {
        use sys::CUpti_ActivityAttribute as attribute;
        assert_eq!(
            [ATTR_POOL_LIMIT, ATTR_ALLOCATION_SOURCE],
            [
                attribute::CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT as u32,
                attribute::CUPTI_ACTIVITY_ATTR_ENABLE_ALLOCATION_SOURCE_TRACKING as u32,
            ]
        );
    }

    #[test]
    fn the_parameters_lie_as_in_the_header() {
        assert_eq!(size_of::<SubscriberParams>(), size_of::<sys::CUpti_SubscriberParams>());
        assert_eq!(
            [offset_of!(SubscriberParams, old_name_len), offset_of!(SubscriberParams, several)],
            [
                offset_of!(sys::CUpti_SubscriberParams, oldSubscriberSize),
                offset_of!(sys::CUpti_SubscriberParams, allowMultipleSubscribers),
            ]
        );
    }
}
