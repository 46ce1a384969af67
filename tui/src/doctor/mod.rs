//! Can this machine and this process be watched, and what will it cost? Looks, and changes nothing.
//!
//! `machine` is where everything is read from, `ask` what has to be asked of libraries; the other files say what
//! follows from it.

pub mod ask;
pub mod child;
mod copies;
mod cupti;
mod finding;
mod gpu;
pub mod json;
mod machine;
mod permission;
mod subject;
mod told;
mod tools;

pub use ask::{Ask, Cuda, Library};
pub use copies::{Copies, Copy};
pub use finding::{Finding, Level};
pub use machine::{Machine, Subject};
pub use told::Told;

/// A process to be watched, and what came of looking for the way to its shim.
#[derive(Debug)]
pub struct Aim {
    /// Its id as this machine numbers it.
    pub pid: u32,
    /// What came of it.
    pub reach: Reach,
}

/// What came of looking for the way to a shim.
#[derive(Debug)]
pub enum Reach {
    /// There is a shim that answers.
    Open {
        /// Where its socket is.
        socket: String,
        /// What it said.
        told: Told,
    },
    /// The shim is not loaded; the other findings say why.
    NotLoaded,
    /// Something else is in the way.
    Closed {
        /// What.
        why: String,
        /// What to do.
        next: String,
    },
}

/// What was found.
#[derive(Debug)]
pub struct Report {
    /// Every finding, those about the machine first.
    pub findings: Vec<Finding>,
    /// Every copy of CUPTI, with the process it was found for; `None` is the machine.
    pub copies: Vec<(Option<u32>, Copies)>,
}

impl Report {
    /// The worst level of all findings.
    #[must_use]
    pub fn level(&self) -> Level {
        self.findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Ok)
    }
}

/// Looks at the machine, and at these processes; without any, at what a program started here would find.
pub fn examine(machine: &Machine, ask: &mut dyn Ask, aims: &[Aim]) -> Report {
    let cuda = ask.cuda();
    let mut findings = gpu::findings(machine, &cuda, &ask.devices());
    findings.extend(permission::findings(machine));
    findings.extend(tools::of_machine(machine));
    let mut copies = Vec::new();
    let cuda = cuda.as_ref().ok();
    if aims.is_empty() {
        let here = machine.here();
        let (found, own) = of_subject(machine, &here, ask, cuda, None);
        findings.extend(own);
        copies.push((None, found));
    }
    for aim in aims {
        let mut own = match &aim.reach {
            Reach::Open { socket, told } => {
                let answers = Finding::ok("reach", format!("its shim answers, at {socket}"));
                [answers].into_iter().chain(told.findings()).collect()
            }
            Reach::NotLoaded => Vec::new(),
            Reach::Closed { why, next } => vec![Finding::fault("reach", why.clone(), next.clone())],
        };
        match machine.subject(aim.pid) {
            Ok(subject) => {
                let told = if let Reach::Open { told, .. } = &aim.reach { Some(told) } else { None };
                let (found, more) = of_subject(machine, &subject, ask, cuda, told);
                own.extend(more);
                copies.push((Some(aim.pid), found));
            }
            Err(error) => own.push(Finding::fault(
                "process",
                format!("it cannot be looked into: {error}"),
                "run doctor as its user or as root",
            )),
        }
        findings.extend(own.into_iter().map(|finding| Finding { pid: Some(aim.pid), ..finding }));
    }
    Report { findings, copies }
}

fn of_subject(
    machine: &Machine,
    subject: &Subject,
    ask: &mut dyn Ask,
    cuda: Option<&Cuda>,
    told: Option<&Told>,
) -> (Copies, Vec<Finding>) {
    let mut findings = subject::findings(machine, subject);
    findings.extend(tools::of_subject(subject));
    let mut copies = copies::find(machine, subject, ask, cuda.map(|cuda| cuda.driver));
    if let Some((version, path)) = told.and_then(|told| told.cupti.as_ref()) {
        copies.called(*version, path);
    }
    findings.extend(cupti::findings(subject, &copies, cuda));
    (copies, findings)
}

#[cfg(test)]
mod tests;
