//! Recordings of real servers as tables, replayed by a thread: what ran, in which launches, after which gaps and
//! for how long.
//!
//! A table is lines of words. `name TEXT` and the operations `kernel`, `copy` and `memset` are numbered as they come;
//! `turn KIND REPEAT` begins a turn, `ops` lists its operations (`+` before one: same launch as the one before), and
//! each `times` line is one run of it, `GAP,NS` an operation. A turn's runs follow each other REPEAT times.

use crate::cupti::Cupti;
use crate::layout::{Copy, Kernel, Place};
use crate::program::{
    Act, Exec, Node, Program, Recipe, Timing, copy_node, kernel_node, memset_node, name_address,
};
use crate::scenario::ScenarioError;
use crate::truth::Kind;
use std::collections::HashMap;
use std::str::FromStr;

const TABLES: [(&str, &str); 1] = [("vllm", include_str!("../data/vllm.table"))];

/// Fills a thread's program from the recording called `name`.
///
/// # Errors
/// There is no such recording.
pub(crate) fn load(name: &str, program: &mut Program, cupti: &Cupti) -> Result<(), ScenarioError> {
    let (_, table) = TABLES
        .iter()
        .find(|(known, _)| *known == name)
        .ok_or_else(|| ScenarioError(format!("there is no recording `{name}`")))?;
    let mut reader = Reader::default();
    for (number, line) in table.lines().enumerate() {
        let read = reader.line(line, program, cupti);
        read.ok_or_else(|| ScenarioError(format!("recording `{name}`, line {}: {line:.60}", number + 1)))?;
    }
    reader.close(program);
    for exec in &mut program.execs {
        exec.plain = exec.nodes.iter().all(|node| node.kind == Kind::Kernel);
    }
    Ok(())
}

/// Makes the node of an operation.
type Make = dyn Fn(&Cupti, Place) -> Node;

/// An operation: where its node is made, and which graph it is of.
struct Operation {
    make: Box<Make>,
    place: Place,
}

#[derive(Default)]
struct Reader {
    names: Vec<u64>,
    operations: Vec<Operation>,
    /// Which of the program's graphs is the one with this id.
    graphs: HashMap<u32, usize>,
    /// Where an operation's node is: graph and index.
    nodes: HashMap<usize, (usize, usize)>,
    ops: Vec<(usize, bool)>,
    repeat: usize,
    /// The first run of the turn being read, among the program's turns.
    first_run: usize,
}

impl Reader {
    fn line(&mut self, line: &str, program: &mut Program, cupti: &Cupti) -> Option<()> {
        let (head, rest) = line.split_once(' ').unwrap_or((line, ""));
        match head {
            "" | "#" => {}
            "name" => self.names.push(name_address(rest, cupti)),
            "kernel" => {
                let [
                    name,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    cx,
                    cy,
                    cz,
                    registers,
                    fixed,
                    dynamic,
                    stream,
                    graph,
                    node,
                    channel,
                ] = numbers(rest)?;
                let kernel = Kernel {
                    name: *self.names.get(name as usize)?,
                    grid: [gx as u32, gy as u32, gz as u32],
                    block: [bx as u32, by as u32, bz as u32],
                    cluster: [cx as u32, cy as u32, cz as u32],
                    registers: registers as u16,
                    static_shared: fixed as u32,
                    dynamic_shared: dynamic as u32,
                };
                let make = move |cupti: &Cupti, place| kernel_node(cupti.version, place, &kernel);
                self.operation(program, [stream, graph, node, channel], make);
            }
            "copy" => {
                let [kind, from, to, flags, bytes, stream, graph, node, channel] = numbers(rest)?;
                let copy =
                    Copy { kind: kind as u8, from: from as u8, to: to as u8, flags: flags as u8, bytes };
                let make = move |cupti: &Cupti, place| copy_node(cupti.version, place, copy);
                self.operation(program, [stream, graph, node, channel], make);
            }
            "memset" => {
                let [value, bytes, stream, graph, node, channel] = numbers(rest)?;
                let make = move |cupti: &Cupti, place| memset_node(cupti.version, place, bytes, value as u32);
                self.operation(program, [stream, graph, node, channel], make);
            }
            "turn" => {
                self.close(program);
                let (_, repeat) = rest.split_once(' ')?;
                self.repeat = repeat.parse().ok()?;
            }
            "ops" => {
                self.ops = rest
                    .split(' ')
                    .map(|word| {
                        let (joined, op) = word.strip_prefix('+').map_or((false, word), |op| (true, op));
                        op.parse().ok().map(|op| (op, joined))
                    })
                    .collect::<Option<_>>()?;
            }
            "times" => self.run(rest, program, cupti)?,
            _ => return None,
        }
        Some(())
    }

    fn operation(
        &mut self,
        program: &Program,
        [stream, graph, node, channel]: [u64; 4],
        make: impl Fn(&Cupti, Place) -> Node + 'static,
    ) {
        let place = Place {
            graph: graph as u32,
            node,
            channel: channel as u32,
            ..program.place(Some(stream as u32))
        };
        self.operations.push(Operation { make: Box::new(make), place });
    }

    /// One run of the turn being read.
    fn run(&mut self, times: &str, program: &mut Program, cupti: &Cupti) -> Option<()> {
        let first_act = program.acts.len();
        let mut times = times.split(' ');
        let ops = std::mem::take(&mut self.ops);
        for &(op, joined) in &ops {
            let (gap, ns) = times.next()?.split_once(',')?;
            program.timings.push(Timing { gap: gap.parse().ok()?, ns: ns.parse().ok()? });
            let (graph, node) = match self.nodes.get(&op) {
                Some(&node) => node,
                None => self.node(op, program, cupti)?,
            };
            match program.acts.last_mut() {
                Some(Act::Work { graph: same, nodes, .. })
                    if joined && *same == graph && nodes.end == node =>
                {
                    nodes.end += 1;
                }
                _ if joined => return None,
                _ => {
                    let timing = program.timings.len() - 1;
                    program.acts.push(Act::Work { graph, nodes: node..node + 1, timing });
                }
            }
        }
        self.ops = ops;
        program.turns.push(first_act..program.acts.len());
        Some(())
    }

    /// Puts the runs of the turn that was read into the order of things.
    fn close(&mut self, program: &mut Program) {
        let runs = self.first_run..program.turns.len();
        self.first_run = runs.end;
        for _ in 0..self.repeat {
            program.order.extend(runs.clone());
        }
    }

    /// Makes the node of an operation that is met for the first time.
    fn node(&mut self, op: usize, program: &mut Program, cupti: &Cupti) -> Option<(usize, usize)> {
        let Operation { make, place } = self.operations.get(op)?;
        let graph = if place.graph == 0 {
            0
        } else {
            *self.graphs.entry(place.graph).or_insert_with(|| {
                program.current.push(program.execs.len());
                program.execs.push(Exec { id: place.graph, early: false, plain: false, nodes: Vec::new() });
                program.recipes.push(Recipe::Recorded);
                program.recipes.len() - 1
            })
        };
        let nodes = &mut program.execs[program.current[graph]].nodes;
        nodes.push(make(cupti, *place));
        self.nodes.insert(op, (graph, nodes.len() - 1));
        Some((graph, nodes.len() - 1))
    }
}

/// Exactly `N` numbers.
fn numbers<const N: usize>(text: &str) -> Option<[u64; N]> {
    let numbers: Vec<_> = text.split(' ').map(u64::from_str).collect::<Result<_, _>>().ok()?;
    numbers.try_into().ok()
}
