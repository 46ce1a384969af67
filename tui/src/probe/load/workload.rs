//! What each workload does in one turn, and the count of everything it asked the GPU for.

use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cuda::{Device, Failure, Graph, Op};

/// The workloads that gtop's measurements are made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Workload {
    /// Kernels on three streams, copies in all directions, memsets, and a graph of a copy, a memset and four kernels.
    Mixed,
    /// A graph of one 64 KiB copy within the device and a tiny kernel.
    D2d,
    /// A graph of one memset and a tiny kernel.
    Memset,
    /// A graph of one pinned copy to the device and a tiny kernel.
    H2d,
    /// A graph of one pinned copy from the device and a tiny kernel.
    D2h,
    /// A graph of 1000 tiny kernels.
    Plain,
    /// Tiny kernels launched one by one.
    Stream,
    /// One kernel each 100 ms.
    Quiet,
}

/// One turn: these operations on these streams, then one replay of a graph of these nodes.
#[derive(Clone, Debug)]
pub struct Plan {
    eager: Vec<(usize, Op)>,
    nodes: Vec<Op>,
    /// Turns between two waits for the GPU; enough that the wait does not show in the time of a turn.
    pub batch: u64,
    /// Pause between two batches.
    pub pause: Duration,
}

impl Workload {
    /// The plan; `kernels` is how many kernel nodes the graph has (else the workload's own number), `eager` adds
    /// one kernel outside the graph to each turn.
    #[must_use]
    pub fn plan(self, kernels: Option<usize>, eager: bool) -> Plan {
        let graph = |first: &[Op], own: usize| [first, &vec![Op::Empty; kernels.unwrap_or(own)]].concat();
        let (mut outside, nodes, batch) = match self {
            Self::Mixed => {
                let outside = vec![
                    (0, Op::HtoD),
                    (0, Op::Increment),
                    (1, Op::Increment),
                    (1, Op::DtoH),
                    (2, Op::Memset),
                    (2, Op::Increment),
                    (2, Op::DtoD),
                ];
                (outside, graph(&[Op::DtoD, Op::Memset], 4), 50)
            }
            Self::D2d => (vec![], graph(&[Op::DtoD], 1), 500),
            Self::Memset => (vec![], graph(&[Op::Memset], 1), 500),
            Self::H2d => (vec![], graph(&[Op::HtoD], 1), 200),
            Self::D2h => (vec![], graph(&[Op::DtoH], 1), 200),
            Self::Plain => (vec![], graph(&[], 1000), 10),
            Self::Stream => (vec![(0, Op::Empty)], vec![], 2000),
            Self::Quiet => (vec![(0, Op::Increment)], vec![], 1),
        };
        if eager {
            outside.push((0, Op::Empty));
        }
        let pause = if self == Self::Quiet { Duration::from_millis(100) } else { Duration::ZERO };
        Plan { eager: outside, nodes, batch, pause }
    }
}

/// What the GPU was asked for, in the terms CUPTI's records have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Kernels, in graphs or not.
    pub kernels: u64,
    /// Copies from pinned host memory.
    pub host_to_device: u64,
    /// Copies to pinned host memory.
    pub device_to_host: u64,
    /// Copies within the device.
    pub device_to_device: u64,
    /// Fills.
    pub memsets: u64,
    /// Replays of graphs.
    pub graph_launches: u64,
    /// Of the kernels, those that were nodes of a replayed graph.
    pub graph_kernels: u64,
    /// Graphs instantiated.
    pub graphs_instantiated: u64,
}

impl Counts {
    fn add(&mut self, op: Op, in_graph: bool) {
        match op {
            Op::Empty | Op::Increment => {
                self.kernels += 1;
                self.graph_kernels += u64::from(in_graph);
            }
            Op::HtoD => self.host_to_device += 1,
            Op::DtoH => self.device_to_host += 1,
            Op::DtoD => self.device_to_device += 1,
            Op::Memset => self.memsets += 1,
        }
    }

    /// Copies in all directions.
    #[must_use]
    pub const fn copies(&self) -> u64 {
        self.host_to_device + self.device_to_host + self.device_to_device
    }

    /// The counts as `gtop stat --json` names them.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "kernel": self.kernels,
            "memcpy": self.copies(),
            "memset": self.memsets,
            "memcpy_by_direction": {
                "HtoD": self.host_to_device, "DtoH": self.device_to_host, "DtoD": self.device_to_device,
            },
            "graph_kernel": self.graph_kernels,
            "graph_launches": self.graph_launches,
            "graphs_instantiated": self.graphs_instantiated,
        })
    }
}

/// A plan at work on a device.
#[derive(Debug)]
pub struct Work<'a> {
    device: &'a Device,
    plan: &'a Plan,
    graph: Option<Graph>,
    /// What was asked for so far.
    pub counts: Counts,
}

impl<'a> Work<'a> {
    /// Nothing done yet, and no graph made.
    #[must_use]
    pub fn new(device: &'a Device, plan: &'a Plan) -> Self {
        Self { device, plan, graph: None, counts: Counts::default() }
    }

    /// Instantiates the graph, in place of the one there was; nothing where the workload has none.
    pub fn instantiate(&mut self) -> Result<(), Failure> {
        if !self.plan.nodes.is_empty() {
            self.graph = Some(self.device.instantiate(&self.plan.nodes)?);
            self.counts.graphs_instantiated += 1;
        }
        Ok(())
    }

    /// One turn. While there is no graph its nodes are launched one by one, as a program warming up does.
    pub fn turn(&mut self) -> Result<(), Failure> {
        for &(stream, op) in &self.plan.eager {
            self.device.enqueue(stream, op)?;
            self.counts.add(op, false);
        }
        if let Some(graph) = &self.graph {
            self.device.replay(graph)?;
            self.counts.graph_launches += 1;
        }
        for &op in &self.plan.nodes {
            if self.graph.is_none() {
                self.device.enqueue(0, op)?;
            }
            self.counts.add(op, self.graph.is_some());
        }
        Ok(())
    }

    /// Turns, then waits for the GPU.
    pub fn batch(&mut self, turns: u64) -> Result<(), Failure> {
        (0..turns).try_for_each(|_| self.turn())?;
        self.device.synchronize()
    }
}
