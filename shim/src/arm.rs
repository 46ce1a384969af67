//! The first steps with CUPTI: find it, ask its version, subscribe, give it our callbacks.
#![expect(
    clippy::result_large_err,
    reason = "a failure carries its text in place: failing must not allocate"
)]

use crate::collect::Collector;
use crate::control::{Named, register};
use crate::find::{self, NotFound};
use crate::fork;
use crate::observe;
use crate::places;
use crate::shared::{Part, Shim, keep};
use crate::sys;
use crate::table::{CuptiError, Refused, Session, Steps, Table, Wish, subscribe};
use crate::text::Text;
use core::fmt;
use gtop_protocol::cupti::CuptiVersion;
use gtop_protocol::message::{Reason, Severity};

/// A CUPTI that was found, and how far we are with it.
#[derive(Debug)]
pub(crate) struct Cupti {
    pub(crate) table: Table,
    pub(crate) version: CuptiVersion,
    pub(crate) collector: Option<&'static Collector>,
    known: bool,
    /// Our subscription.
    pub(crate) session: Option<Session>,
    /// Whether our callbacks are CUPTI's; only while subscribed.
    pub(crate) registered: bool,
    /// Who holds CUPTI, asked once each time it is found held; empty is not known.
    holder: Option<Text<64>>,
    /// Whether the pool limit was tried, and it was said that an interface was not to be had.
    limited: bool,
    told: bool,
}

impl Cupti {
    /// Whether the process's one subscription is ours.
    pub(crate) const fn subscribed(&self) -> bool {
        self.session.is_some()
    }
}

/// Why arming failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) reason: Reason,
    pub(crate) error: u32,
    pub(crate) detail: Text<256>,
}

impl Failure {
    pub(crate) fn new(reason: Reason, error: u32, detail: fmt::Arguments<'_>) -> Self {
        Self { reason, error, detail: Text::new(detail) }
    }

    /// The process ends, and so nothing was begun.
    pub(crate) fn exits() -> Self {
        Self::new(Reason::None, 0, format_args!("the process exits"))
    }

    fn refused(call: &str, error: CuptiError) -> Self {
        Self::new(Reason::Refused, error.0, format_args!("{call}: {}", Named(error)))
    }
}

impl From<NotFound> for Failure {
    fn from(not_found: NotFound) -> Self {
        Self { reason: not_found.reason, error: 0, detail: not_found.detail }
    }
}

/// Finds CUPTI's functions. Calls none of them.
pub(crate) fn open(shim: &Shim) -> Result<Cupti, Failure> {
    let table = match shim.resolver {
        Some(resolver) => Table::find(resolver),
        None => match find::cupti(&shim.config) {
            Ok(library) => Table::find(|name| library.symbol(name)),
            Err(not_found) => return Err(not_found.into()),
        },
    };
    let table = table.map_err(|missing| {
        let missing = missing.to_string_lossy();
        Failure::new(Reason::NoCupti, 0, format_args!("the library found has no {missing}"))
    })?;
    Ok(Cupti {
        table,
        version: CuptiVersion(0),
        collector: None,
        known: false,
        session: None,
        registered: false,
        holder: None,
        limited: false,
        told: false,
    })
}

/// Goes as far as having the callbacks registered; steps done before are not repeated.
pub(crate) fn prepare(shim: &'static Shim, cupti: &mut Cupti) -> Result<(), Failure> {
    let table = cupti.table;
    if !cupti.known {
        let version = table.version().map_err(|error| Failure::refused("cuptiGetVersion", error))?;
        cupti.version = CuptiVersion(version);
        cupti.known = true;
        let path = sys::file_of(table.address()).unwrap_or(Text::EMPTY);
        shim.log.line(format_args!("CUPTI {} ({version}) at {path}", cupti.version));
        shim.update(|board| {
            board.status.cupti_version = Some(version);
            board.status.cupti_path = path;
            board.status.changed(Part::Hello);
        });
    }
    if shim.resolver.is_none() {
        find::proven(&shim.config, &sys::file_of(table.address()).unwrap_or(Text::EMPTY))?;
    }
    let collector = if let Some(collector) = shim.collector.get() {
        collector
    } else {
        let made = Collector::new(Steps::of(&table), cupti.version, &shim.wake).and_then(keep);
        let no_memory = Failure::new(Reason::NoMemory, 0, format_args!("for buffers and frames"));
        let made = made.ok_or(no_memory)?;
        shim.collector.get_or_init(|| made)
    };
    cupti.collector = Some(collector);
    // Each of these calls may take seconds.
    let goes_on = || if shim.exits() { Err(Failure::exits()) } else { Ok(()) };
    goes_on()?;
    let session = match cupti.session {
        Some(session) => session,
        None => begin(shim, cupti)?,
    };
    goes_on()?;
    if !cupti.registered {
        let call = match session.interface() {
            1 => "cuptiActivityRegisterCallbacks",
            _ => "cuptiActivityRegisterCallbacks_v2",
        };
        register(&session, collector).map_err(|error| {
            if error.is_busy() { busy(call, error, &Text::EMPTY) } else { Failure::refused(call, error) }
        })?;
        cupti.registered = true;
    }
    Ok(())
}

/// Subscribes.
fn begin(shim: &'static Shim, cupti: &mut Cupti) -> Result<Session, Failure> {
    let Cupti { table, version, .. } = *cupti;
    let wish = Wish { v2: shim.config.v2, several: driver_bears_several() };
    if wish.v2 && !table.has_v2(version) && !core::mem::replace(&mut cupti.told, true) {
        shim.note(
            Severity::Warning,
            "interface",
            format_args!("interface v2 needs CUPTI 13.3 or newer, this is {version}: v1 is used"),
        );
    }
    let session =
        subscribe(&table, version, wish, &mut cupti.holder).map_err(|Refused { call, error }| {
            if error.is_busy() {
                busy(call, error, &cupti.holder.unwrap_or(Text::EMPTY))
            } else {
                refused_to_subscribe(call, error, version)
            }
        })?;
    cupti.session = Some(session);
    fork::subscribed(true);
    cupti.holder = None;
    shim.update(|board| {
        board.status.cupti_interface = session.interface();
        board.status.changed(Part::Hello);
    });
    let beside = session.beside();
    if !beside.is_empty() {
        shim.note(
            Severity::Info,
            "interface",
            format_args!("beside \"{beside}\", which uses CUPTI too: through interface v2"),
        );
    }
    if shim.config.early {
        observe::start(shim, table.observing(), version, session.handle());
    }
    if !core::mem::replace(&mut cupti.limited, true) {
        set_pool_limit(shim, &session);
    }
    Ok(session)
}

/// Whether the driver bears several subscribers: NVIDIA documents r610 as the first. Measured on 580.159.04: two could
/// subscribe to CUPTI 13.5.25, but only one of them read records.
fn driver_bears_several() -> bool {
    const FIRST: u32 = 610;
    let maps = sys::maps();
    let major = places::driver(&maps).and_then(|version| version.split('.').next()?.parse().ok());
    major.is_some_and(|major: u32| major >= FIRST)
}

/// Gives the subscription back, so that another tool can start. CUPTI must hold none of our buffers.
pub(crate) fn release(cupti: &mut Cupti) -> Result<(), CuptiError> {
    let Some(session) = cupti.session else { return Ok(()) };
    session.unsubscribe()?;
    cupti.session = None;
    fork::subscribed(false);
    observe::stopped();
    // Whoever comes next registers its own; ours go in again with the next subscription.
    cupti.registered = false;
    Ok(())
}

/// `CUPTI_ERROR_NOT_INITIALIZED`: what a CUPTI says to which the driver is too old (documented for `cuptiSubscribe`).
const NOT_INITIALIZED: u32 = 15;

fn refused_to_subscribe(call: &str, error: CuptiError, version: CuptiVersion) -> Failure {
    if error.0 != NOT_INITIALIZED {
        return Failure::refused(call, error);
    }
    let maps = sys::maps();
    let (before, driver) = places::driver(&maps).map_or(("", "this driver"), |driver| ("driver ", driver));
    let error = Named(error);
    Failure::new(
        Reason::Refused,
        NOT_INITIALIZED,
        format_args!("{call}: {error}; CUPTI {version} may be newer than {before}{driver} allows"),
    )
}

fn busy(call: &str, error: CuptiError, holder: &Text<64>) -> Failure {
    if fork::inherits() {
        // Its copy of CUPTI believes so; nobody can give that back here.
        let detail = format_args!(
            "{call}: {}, held by gtop's shim in the process this one was forked from; CUDA does not go through a fork: \
             start it with spawn or exec",
            Named(error)
        );
        return Failure::new(Reason::Forked, error.0, detail);
    }
    let likely = find::likely_holders();
    let detail = if holder.is_empty() && likely.is_empty() {
        Text::new(format_args!("{call}: {}", Named(error)))
    } else if holder.is_empty() {
        Text::new(format_args!("{call}: {}; {likely}", Named(error)))
    } else {
        Text::new(format_args!("{call}: {}; it calls itself \"{holder}\"", Named(error)))
    };
    Failure { reason: Reason::Busy, error: error.0, detail }
}

/// Sets the pool limit if that can still have an effect.
fn set_pool_limit(shim: &Shim, session: &Session) {
    let Some(limit) = shim.config.pool_limit else { return };
    if !shim.config.early {
        shim.note(
            Severity::Warning,
            "pool",
            format_args!("the pool limit {limit} comes too late to have an effect: it needs an early start"),
        );
        return;
    }
    match session.set_pool_limit(usize::try_from(limit).unwrap_or(usize::MAX)) {
        Ok(()) => {
            shim.note(Severity::Info, "pool", format_args!("device buffers limited to {limit} a context"));
        }
        Err(error) => {
            shim.note(Severity::Warning, "pool", format_args!("no pool limit: {}", Named(error)));
        }
    }
}
