//! The one simulated GPU of the process: its CUPTI, the application's threads, and the handle that runs them.

use crate::callbacks::resource;
use crate::client::Host;
use crate::clock::Clock;
use crate::cupti::{Cupti, attribute, lock};
use crate::lane::Lane;
use crate::program::Program;
use crate::scenario::{Fault, Scenario, ScenarioError};
use crate::truth::Truth;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often a thread of the application looks what has fallen due. Longer saves CPU; records are some
/// milliseconds old on a real GPU too.
const TICK: Duration = Duration::from_millis(4);
/// How long it sleeps at most when nothing falls due.
const LONGEST_TICK: Duration = Duration::from_millis(100);

/// The simulated GPU and CUPTI of the process.
pub(crate) struct World {
    pub(crate) cupti: Cupti,
    pub(crate) lanes: Vec<Mutex<Lane>>,
    pub(crate) hosts: Vec<Arc<Mutex<Host>>>,
    /// Whether the application runs by itself.
    pub(crate) running: AtomicBool,
    stop: (Mutex<bool>, Condvar),
    /// A flush asked for inside a callback: 0 for none, 1, or 2 for a forced one.
    flush_soon: AtomicU32,
}

static WORLD: RwLock<Option<Arc<World>>> = RwLock::new(None);
static LEASE: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
/// The version that the current world's CUPTI is of, for the one call too frequent to look it up.
pub(crate) static VERSION: AtomicU32 = AtomicU32::new(0);

/// Whether stepping from record to record is to fail; apart from the world, which is too far away for each record.
pub(crate) static STEP_FAILS: AtomicBool = AtomicBool::new(false);

/// The world of the process, if there is one.
pub(crate) fn current() -> Option<Arc<World>> {
    WORLD.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl World {
    fn new(scenario: &Scenario, clock: Clock, aborts: bool) -> Result<Self, ScenarioError> {
        let cupti = Cupti::new(scenario, clock, aborts);
        let shared = Arc::new(Mutex::new(Host::default()));
        let mut hosts = Vec::new();
        let mut lanes = Vec::new();
        for thread in &scenario.threads {
            let host = if cupti.version.per_thread_buffers() { Arc::default() } else { Arc::clone(&shared) };
            let program = Program::new(scenario, thread, &cupti)?;
            let context = cupti.context(thread.context).unwrap_or(0);
            lanes.push(Mutex::new(Lane::new(program, thread, context, Arc::clone(&host))));
            hosts.push(host);
        }
        let stop = (Mutex::new(false), Condvar::new());
        Ok(Self { cupti, lanes, hosts, running: AtomicBool::new(false), stop, flush_soon: AtomicU32::new(0) })
    }

    /// What `cuptiActivityFlushAll` does.
    pub(crate) fn flush(&self, forced: bool) {
        for lane in &self.lanes {
            let mut lane = lock(lane);
            let now = self.cupti.clock.now();
            if self.running.load(Relaxed) {
                lane.advance(&self.cupti, now);
            }
            lane.flush(&self.cupti, now, forced);
        }
    }

    /// Has a flush done once the launch is through in whose callback it was asked for.
    pub(crate) fn flush_soon(&self, forced: bool) {
        self.flush_soon.fetch_max(1 + u32::from(forced), Relaxed);
    }

    fn flush_if_asked(&self) {
        let asked = self.flush_soon.swap(0, Relaxed);
        if asked > 0 {
            self.flush(asked > 1);
        }
    }

    /// Whether the GPU has work.
    pub(crate) fn busy(&self) -> bool {
        let now = self.cupti.clock.now();
        self.running.load(Relaxed) || self.lanes.iter().any(|lane| lock(lane).busy_until() > now)
    }

    /// Writes into buffers that were kept.
    fn write_kept(&self) {
        for host in &self.hosts {
            lock(host).write_late();
        }
    }

    /// Writes into buffers that were kept, 100 ms from now.
    pub(crate) fn write_late(self: &Arc<Self>) {
        let world = Arc::clone(self);
        let write = move || {
            std::thread::sleep(Duration::from_millis(100));
            world.write_kept();
        };
        // Without a thread nothing is written, which harms nobody.
        let _ = std::thread::Builder::new().name("sim-cupti".into()).spawn(write);
    }

    fn run_lane(&self, lane: usize) {
        loop {
            let mut held = lock(&self.lanes[lane]);
            held.advance(&self.cupti, self.cupti.clock.now());
            let finished = held.finished();
            let idle = Duration::from_nanos(held.idle(self.cupti.clock.now()));
            drop(held);
            self.flush_if_asked();
            let stopped = lock(&self.stop.0);
            if *stopped || finished {
                return;
            }
            let periodic = self.cupti.flush_period.load(Relaxed) > 0;
            let tick = if periodic { TICK } else { idle.clamp(TICK, LONGEST_TICK) };
            let waited = self.stop.1.wait_timeout(stopped, tick);
            if *waited.unwrap_or_else(PoisonError::into_inner).0 {
                return;
            }
        }
    }
}

/// The handle of a simulated GPU. While it lives, [`resolve`](crate::resolve) and its functions act on it; there is
/// one in a process at a time.
pub struct Simulation {
    world: Arc<World>,
    begun: bool,
    threads: Vec<JoinHandle<()>>,
}

/// How a simulation passes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// By the machine's clock, on threads of its own, once it was told to [`run`](Simulation::run).
    Real,
    /// By [`turns`](Simulation::turns), on the thread that asks, as fast as that goes.
    Stepped,
}

impl Simulation {
    /// Puts a GPU and a CUPTI into the process; the application has not started. Waits while another one is there.
    ///
    /// # Errors
    /// The scenario is not consistent.
    pub fn load(scenario: &Scenario, pace: Pace) -> Result<Self, ScenarioError> {
        Self::load_with(scenario, pace, false)
    }

    /// The same; with `aborts`, what would crash the real library ends the process.
    pub(crate) fn load_with(scenario: &Scenario, pace: Pace, aborts: bool) -> Result<Self, ScenarioError> {
        let clock = match pace {
            Pace::Real => Clock::Real,
            Pace::Stepped => Clock::stepped(),
        };
        let world = Arc::new(World::new(scenario, clock, aborts)?);
        let mut taken = lock(&LEASE.0);
        while *taken {
            taken = LEASE.1.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        *taken = true;
        VERSION.store(scenario.cupti, Relaxed);
        STEP_FAILS.store(scenario.faults.iter().any(Fault::is_of_steps), Relaxed);
        *WORLD.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&world));
        Ok(Self { world, begun: false, threads: Vec::new() })
    }

    /// The application starts: it creates its contexts and instantiates its graphs. What was called of CUPTI before
    /// makes them early. Happens by itself with the first turn.
    pub fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.world.cupti.create_contexts();
            let cupti = &self.world.cupti;
            for context in 0..cupti.contexts.len() {
                resource(cupti, resource::CONTEXT_CREATED, context, None, None);
            }
            let now = cupti.clock.now();
            for lane in &self.world.lanes {
                lock(lane).begin(cupti, now);
            }
        }
    }

    /// The application runs by itself from now on, each of its threads on one of ours.
    pub fn run(&mut self) {
        self.begin();
        if self.world.running.swap(true, Relaxed) {
            return;
        }
        for lane in 0..self.world.lanes.len() {
            let world = Arc::clone(&self.world);
            let name = format!("sim-app-{lane}");
            if let Ok(thread) = std::thread::Builder::new().name(name).spawn(move || world.run_lane(lane)) {
                self.threads.push(thread);
            }
        }
    }

    /// Every thread of a stepped application does so many turns, and the GPU finishes them.
    pub fn turns(&mut self, turns: u64) {
        self.begin();
        self.launch(turns);
        self.settle();
    }

    /// Every thread of a stepped application does so many turns; the last of them is still on the GPU after.
    pub fn launch(&mut self, turns: u64) {
        self.begin();
        for lane in &self.world.lanes {
            let mut lane = lock(lane);
            lane.resume(self.world.cupti.clock.now());
            lane.run_turns(&self.world.cupti, turns);
            drop(lane);
            self.world.flush_if_asked();
        }
    }

    /// The GPU of a stepped application finishes what was launched.
    pub fn settle(&self) {
        for lane in &self.world.lanes {
            self.world.cupti.clock.reach(lock(lane).ends());
        }
    }

    /// Sets the bytes of a device buffer before the application starts, where no client is there to do it.
    pub fn set_device_buffer_size(&self, bytes: u64) {
        self.world.cupti.set_attribute(attribute::DEVICE_BUFFER_SIZE, bytes);
    }

    /// So many nanoseconds pass for a stepped application.
    pub fn pass(&self, ns: u64) {
        self.world.cupti.clock.reach(self.world.cupti.clock.now() + ns);
    }

    /// A stepped application does what has fallen due by now, as it would in real time.
    pub fn catch_up(&mut self) {
        self.begin();
        for lane in &self.world.lanes {
            lock(lane).advance(&self.world.cupti, self.world.cupti.clock.now());
        }
    }

    /// Every thread that has the graph `name` instantiates it again. False if none has.
    #[must_use]
    pub fn instantiate(&self, name: &str) -> bool {
        let now = self.world.cupti.clock.now();
        let mut any = false;
        for lane in &self.world.lanes {
            any |= lock(lane).instantiate(&self.world.cupti, name, now);
        }
        any
    }

    /// Waits until every thread of the application has done its turns.
    pub fn wait(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread of the simulation that panicked has said so; what it counted stands.
            let _ = thread.join();
        }
    }

    /// The application stops, and the GPU ends what was launched. Records of it stay to be flushed.
    pub fn stop(&mut self) {
        self.halt();
        let busy_until = self.world.lanes.iter().map(|lane| lock(lane).busy_until()).max().unwrap_or(0);
        while self.world.cupti.clock.is_real() && self.world.cupti.clock.now() < busy_until {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    fn halt(&mut self) {
        *lock(&self.world.stop.0) = true;
        self.world.stop.1.notify_all();
        self.wait();
        self.world.running.store(false, Relaxed);
    }

    /// Another tool, which calls itself so, takes CUPTI as its subscriber and registers its callbacks. False if it
    /// cannot: it gets error 39 while the client is subscribed.
    #[must_use]
    pub fn hold_cupti(&self, name: &str) -> bool {
        self.world.cupti.take_over(name)
    }

    /// Another tool, which calls itself so, subscribes through v2, lets others in, and traces kernels. False if it
    /// cannot: it gets error 39 while the client is subscribed and does not let it.
    #[must_use]
    pub fn share_cupti(&self, name: &str) -> bool {
        self.world.cupti.take_a_share(name)
    }

    /// CUPTI writes into the buffers that it was given and never gave back.
    pub fn write_kept(&self) {
        self.world.write_kept();
    }

    /// The other tool lets go of CUPTI.
    pub fn release_cupti(&self) {
        self.world.cupti.faults.release();
    }

    /// What really happened until now.
    #[must_use]
    pub fn truth(&self) -> Truth {
        let cupti = &self.world.cupti;
        cupti.ledger.truth(cupti.version.0, cupti.device_buffers())
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        self.halt();
        *WORLD.write().unwrap_or_else(PoisonError::into_inner) = None;
        *lock(&LEASE.0) = false;
        LEASE.1.notify_one();
    }
}
