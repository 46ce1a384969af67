//! What a thread of the application does, made ready to run: executable graphs, and acts that refer to them.

use crate::callbacks::{GraphData, handle, resource};
use crate::cupti::Cupti;
use crate::driver_call::DriverCall;
use crate::layout::{Copy, Kernel, Place, Record};
use crate::names;
use crate::replay;
use crate::scenario::{Direction, Graph, MemorySort, Scenario, ScenarioError, Step, Thread};
use crate::truth::Kind;
use crate::version::Version;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// One node of a graph, or one eager operation.
pub(crate) struct Node {
    pub(crate) kind: Kind,
    /// Done by the SMs rather than a copy engine: copies within a device, and memory sets.
    pub(crate) on_device: bool,
    pub(crate) record: Record,
    /// What a late graph's copy within a device or memory set is recorded as: a kernel of CUPTI's making.
    pub(crate) as_kernel: Option<Box<Record>>,
}

/// When a node runs: after a gap, for a time. Nanoseconds.
#[derive(Clone, Copy)]
pub(crate) struct Timing {
    pub(crate) gap: i64,
    pub(crate) ns: u64,
}

/// An executable graph, or with id 0 the eager work of a thread.
pub(crate) struct Exec {
    pub(crate) id: u32,
    /// Whether CUPTI had been called when it was instantiated.
    pub(crate) early: bool,
    /// Whether it has kernels only.
    pub(crate) plain: bool,
    pub(crate) nodes: Vec<Node>,
}

/// One thing a thread does.
#[derive(Clone)]
pub(crate) enum Act {
    /// Runs nodes: of eager work each by a launch of its own, of a graph all by one.
    Work {
        graph: usize,
        nodes: Range<usize>,
        timing: usize,
    },
    /// Makes a new executable graph.
    Instantiate {
        graph: usize,
        keep: Keep,
    },
    /// Destroys the executable graph that a graph stands for.
    Destroy {
        graph: usize,
    },
    /// A call of the driver, of which only callbacks tell.
    Call(Box<DriverCall>),
    Wait(u64),
    Sync,
    Memory {
        allocation: bool,
        bytes: u64,
        /// Address of the path of the library that asks.
        library: u64,
        sort: Option<MemorySort>,
    },
}

/// What an application forgets to destroy when it makes a graph again.
#[derive(Clone, Copy, Default)]
pub(crate) struct Keep {
    pub(crate) exec: bool,
    pub(crate) graph: bool,
}

/// A graph as it can be instantiated again.
pub(crate) enum Recipe {
    Eager,
    Steps(Graph),
    /// Instantiated once, from a recording, with the ids it has there.
    Recorded,
}

/// A thread's work.
pub(crate) struct Program {
    pub(crate) device: u32,
    pub(crate) context_id: u32,
    pub(crate) stream: u32,
    pub(crate) recipes: Vec<Recipe>,
    /// The executable graph each graph stands for now, in `execs`.
    pub(crate) current: Vec<usize>,
    /// How often each graph was made.
    made: Vec<u32>,
    pub(crate) execs: Vec<Exec>,
    pub(crate) acts: Vec<Act>,
    pub(crate) timings: Vec<Timing>,
    /// The acts of each kind of turn.
    pub(crate) turns: Vec<Range<usize>>,
    /// Which kind of turn follows which, over and over.
    pub(crate) order: Vec<usize>,
}

static GRAPHS: AtomicU32 = AtomicU32::new(1);

/// A graph without a `gap` leaves this much time between two nodes, in nanoseconds.
const GRAPH_GAP: i64 = 500;
/// Eager work without a `gap` starts this much later.
const EAGER_GAP: i64 = 2_000;
/// How long things take that do not say.
const DEFAULT_NS: u64 = 2_000;

impl Program {
    /// Makes a thread ready to run.
    ///
    /// # Errors
    /// Something the thread names does not exist, or a step is not exactly one thing.
    pub(crate) fn new(scenario: &Scenario, thread: &Thread, cupti: &Cupti) -> Result<Self, ScenarioError> {
        let context =
            scenario.contexts.iter().find(|context| context.id == thread.context).ok_or_else(|| {
                ScenarioError(format!("a thread uses context {}, which is not there", thread.context))
            })?;
        let mut program = Self {
            device: context.device,
            context_id: context.id,
            stream: thread.stream,
            recipes: vec![Recipe::Eager],
            current: vec![0],
            made: vec![0],
            execs: vec![Exec { id: 0, early: false, plain: false, nodes: Vec::new() }],
            acts: Vec::new(),
            timings: Vec::new(),
            turns: Vec::new(),
            order: Vec::new(),
        };
        if let Some(replay) = &thread.replay {
            replay::load(replay, &mut program, cupti)?;
            return Ok(program);
        }
        for graph in &scenario.graphs {
            if thread.steps.iter().any(|step| names_graph(step, &graph.name)) {
                program.recipes.push(Recipe::Steps(graph.clone()));
                program.current.push(usize::MAX);
                program.made.push(0);
            }
        }
        for step in &thread.steps {
            program.step(step, cupti)?;
        }
        if program.acts.is_empty() {
            return Err(ScenarioError("a thread has neither steps nor a replay".into()));
        }
        program.turns.push(0..program.acts.len());
        program.order.push(0);
        // Timings of graph launches were written before the graphs' nodes are; check the nodes now.
        for graph in 1..program.recipes.len() {
            program.instantiate(graph, cupti, false, Keep::default())?;
        }
        program.execs.truncate(1);
        program.current[1..].fill(usize::MAX);
        program.made.fill(0);
        Ok(program)
    }

    /// Instantiates every graph, as the application does before it works.
    pub(crate) fn instantiate_all(&mut self, cupti: &Cupti, early: bool) {
        for graph in 1..self.recipes.len() {
            if matches!(self.recipes[graph], Recipe::Recorded) {
                let exec = self.current[graph];
                self.execs[exec].early = early;
            } else {
                // Was checked when the program was made.
                let _ = self.instantiate(graph, cupti, early, Keep::default());
            }
        }
    }

    /// Makes a new executable graph of a graph.
    pub(crate) fn instantiate(
        &mut self,
        graph: usize,
        cupti: &Cupti,
        early: bool,
        keep: Keep,
    ) -> Result<(), ScenarioError> {
        let Recipe::Steps(recipe) = &self.recipes[graph] else { return Ok(()) };
        let id = GRAPHS.fetch_add(1, Relaxed);
        let mut nodes = Vec::new();
        for (i, step) in recipe.nodes.iter().enumerate() {
            let last = i + 1 == recipe.nodes.len();
            let more = if last { self.made[graph] * recipe.grow } else { 0 };
            for _ in 0..step.times.unwrap_or(1) + more {
                let place = Place { graph: id, node: node_id(id, nodes.len()), ..self.place(step.stream) };
                nodes.push(node(step, place, cupti)?);
            }
        }
        let plain = nodes.iter().all(|node| node.kind == Kind::Kernel);
        let before = self.execs.get(self.current[graph]).filter(|_| !keep.exec).map(|exec| exec.id);
        self.current[graph] = self.execs.len();
        self.made[graph] += 1;
        self.execs.push(Exec { id, early, plain, nodes });
        self.call_back(cupti, graph, before, keep.graph);
        Ok(())
    }

    /// The id of the executable graph that a graph stands for now.
    pub(crate) fn exec_id(&self, graph: usize) -> u32 {
        self.execs.get(self.current[graph]).map_or(0, |exec| exec.id)
    }

    /// Destroys the executable graph that a graph stands for.
    pub(crate) fn destroy(&self, graph: usize, cupti: &Cupti) {
        let Some(exec) = self.execs.get(self.current[graph]) else { return };
        let Some(context) = cupti.context(self.context_id) else { return };
        let gone = GraphData { exec: handle::EXEC + exec.id as usize, ..GraphData::of(exec.id) };
        resource(cupti, resource::EXEC_DESTROY_STARTING, context, None, Some(&gone));
    }

    /// Tells a subscriber of a graph that was made, of its nodes and its executable, and of the executable that this
    /// one takes the place of.
    fn call_back(&self, cupti: &Cupti, graph: usize, before: Option<u32>, keeps_graph: bool) {
        let Some(context) = cupti.context(self.context_id).filter(|_| cupti.calls_back()) else { return };
        let exec = &self.execs[self.current[graph]];
        let source = exec.id | handle::SOURCE;
        let tell = |id, data: &GraphData| resource(cupti, id, context, None, Some(data));
        let plain = |name| DriverCall::new(name, self.stream).about(exec.id);
        let call = |name| plain(name).call_back(cupti, context);
        call("cuStreamBeginCapture_v2");
        tell(resource::GRAPH_CREATED, &GraphData::of(source));
        for (i, node) in exec.nodes.iter().enumerate() {
            // `CUgraphNodeType`: kernel, memcpy, memset.
            let node_type = match node.kind {
                Kind::Kernel => 0,
                Kind::Memcpy => 1,
                _ => 2,
            };
            let node = handle::NODE + node_id(source, i) as usize;
            tell(resource::NODE_CREATED, &GraphData { node, node_type, ..GraphData::of(source) });
        }
        if let Recipe::Steps(recipe) = &self.recipes[graph]
            && recipe.allocates > 0
        {
            plain("cuMemAlloc_v2").of_bytes(recipe.allocates).call_back(cupti, context);
        }
        call("cuStreamEndCapture");
        let made = GraphData { exec: handle::EXEC + exec.id as usize, ..GraphData::of(source) };
        tell(resource::EXEC_CREATE_STARTING, &made);
        tell(resource::EXEC_CREATED, &made);
        call("cuGraphInstantiateWithFlags");
        if !keeps_graph {
            tell(resource::GRAPH_DESTROY_STARTING, &GraphData::of(source));
        }
        if let Some(id) = before {
            let gone = GraphData { exec: handle::EXEC + id as usize, ..GraphData::of(id) };
            tell(resource::EXEC_DESTROY_STARTING, &gone);
        }
    }

    pub(crate) fn place(&self, stream: Option<u32>) -> Place {
        let stream = stream.unwrap_or(self.stream);
        Place { device: self.device, context: self.context_id, stream, channel: stream, ..Place::default() }
    }

    fn step(&mut self, step: &Step, cupti: &Cupti) -> Result<(), ScenarioError> {
        let given = [
            step.kernel.is_some(),
            step.copy.is_some(),
            step.memset.is_some(),
            step.launch.is_some(),
            step.instantiate.is_some(),
            step.destroy.is_some(),
            step.call.is_some(),
            step.wait.is_some(),
            step.sync.is_some(),
            step.alloc.is_some(),
            step.free.is_some(),
        ];
        if given.into_iter().filter(|given| *given).count() != 1 {
            return Err(ScenarioError(format!("a step must do exactly one thing: {step:?}")));
        }
        let times = step.times.unwrap_or(1) as usize;
        if let Some(name) = &step.launch {
            let (graph, recipe) = self.graph(name)?;
            let timings: Vec<_> = recipe
                .nodes
                .iter()
                .flat_map(|node| {
                    std::iter::repeat_n(timing(node, GRAPH_GAP), node.times.unwrap_or(1) as usize)
                })
                .collect();
            let act = Act::Work { graph, nodes: 0..timings.len(), timing: self.timings.len() };
            self.timings.extend(timings);
            self.acts.extend(std::iter::repeat_n(act, times));
        } else if let Some(name) = &step.instantiate {
            let (graph, _) = self.graph(name)?;
            let keep = Keep { exec: step.keep.unwrap_or(false), graph: step.keep_graph.unwrap_or(false) };
            self.acts.push(Act::Instantiate { graph, keep });
        } else if let Some(name) = &step.destroy {
            let (graph, _) = self.graph(name)?;
            self.acts.push(Act::Destroy { graph });
        } else if let Some(name) = &step.call {
            let of = step.of.as_ref().map(|name| self.graph(name)).transpose()?.map(|(graph, _)| graph);
            let call = DriverCall::from_step(name, step, self.stream, of, cupti)?;
            self.acts.extend(std::iter::repeat_n(Act::Call(Box::new(call)), times));
        } else if let Some(span) = step.wait {
            self.acts.push(Act::Wait(span.0));
        } else if step.sync.is_some() {
            self.acts.push(Act::Sync);
        } else if let Some(bytes) = step.alloc.or(step.free) {
            let library = step.library.as_deref().unwrap_or("/usr/bin/application");
            let library = names::intern(library);
            self.acts.push(Act::Memory {
                allocation: step.alloc.is_some(),
                bytes,
                library,
                sort: step.memory,
            });
        } else {
            let first = self.execs[0].nodes.len();
            let node = node(step, self.place(step.stream), cupti)?;
            self.execs[0].nodes.push(node);
            for _ in 0..times {
                self.acts.push(Act::Work { graph: 0, nodes: first..first + 1, timing: self.timings.len() });
            }
            self.timings.push(timing(step, EAGER_GAP));
        }
        Ok(())
    }

    fn graph(&self, name: &str) -> Result<(usize, &Graph), ScenarioError> {
        self.recipes
            .iter()
            .enumerate()
            .find_map(|(i, recipe)| match recipe {
                Recipe::Steps(graph) if graph.name == name => Some((i, graph)),
                _ => None,
            })
            .ok_or_else(|| ScenarioError(format!("there is no graph `{name}`")))
    }
}

/// The id of a node: which graph it is of, and which node of it.
fn node_id(graph: u32, node: usize) -> u64 {
    u64::from(graph) << 32 | node as u64
}

fn names_graph(step: &Step, name: &str) -> bool {
    [&step.launch, &step.instantiate, &step.destroy, &step.of]
        .into_iter()
        .flatten()
        .any(|named| named == name)
}

fn timing(step: &Step, gap: i64) -> Timing {
    Timing { gap: step.gap.unwrap_or(gap), ns: step.ns.unwrap_or(DEFAULT_NS) }
}

fn node(step: &Step, place: Place, cupti: &Cupti) -> Result<Node, ScenarioError> {
    let version = cupti.version;
    if let Some(name) = &step.kernel {
        let [static_shared, dynamic_shared] = step.shared.unwrap_or_default();
        let kernel = Kernel {
            name: name_address(name, cupti),
            grid: step.grid.unwrap_or([32, 1, 1]),
            block: step.block.unwrap_or([256, 1, 1]),
            cluster: step.cluster.unwrap_or_default(),
            registers: step.registers.unwrap_or(32),
            static_shared,
            dynamic_shared,
        };
        return Ok(kernel_node(version, place, &kernel));
    }
    if let Some(direction) = step.copy {
        return Ok(copy_node(version, place, direction.copy(step.bytes.unwrap_or(65_536))));
    }
    let bytes = step
        .memset
        .ok_or_else(|| ScenarioError(format!("a node must be a kernel, a copy or a memset: {step:?}")))?;
    Ok(memset_node(version, place, bytes, 0))
}

/// The address at which records find the name of a kernel.
pub(crate) fn name_address(name: &str, cupti: &Cupti) -> u64 {
    cupti
        .faults
        .reused
        .iter()
        .find(|(reused, ..)| reused == name)
        .map_or_else(|| names::intern(name), |(_, reused, _)| reused.address())
}

pub(crate) fn kernel_node(version: Version, place: Place, kernel: &Kernel) -> Node {
    let record = Record::kernel(version, place, kernel);
    Node { kind: Kind::Kernel, on_device: true, record, as_kernel: None }
}

pub(crate) fn copy_node(version: Version, place: Place, copy: Copy) -> Node {
    let on_device = copy.kind == Copy::DEVICE_TO_DEVICE;
    Node {
        kind: Kind::Memcpy,
        on_device,
        record: Record::copy(version, place, &copy),
        as_kernel: on_device.then(|| stand_in(version, place, "memcpy32_post")),
    }
}

pub(crate) fn memset_node(version: Version, place: Place, bytes: u64, value: u32) -> Node {
    Node {
        kind: Kind::Memset,
        on_device: true,
        record: Record::memset(version, place, bytes, value),
        as_kernel: Some(stand_in(version, place, "memset32_post")),
    }
}

fn stand_in(version: Version, place: Place, name: &str) -> Box<Record> {
    let kernel = Kernel {
        name: names::intern(name),
        grid: [8, 1, 1],
        block: [512, 1, 1],
        cluster: [0; 3],
        registers: 16,
        static_shared: 0,
        dynamic_shared: 0,
    };
    Box::new(Record::kernel(version, place, &kernel))
}

impl Direction {
    const fn copy(self, bytes: u64) -> Copy {
        let (kind, from, to) = match self {
            Self::H2d => (Copy::HOST_TO_DEVICE, 2, 3),
            Self::D2h => (Copy::DEVICE_TO_HOST, 3, 2),
            Self::D2d => (Copy::DEVICE_TO_DEVICE, 3, 3),
            Self::P2p => (Copy::PEER, 3, 3),
        };
        Copy { kind, from, to, flags: 1, bytes }
    }
}
