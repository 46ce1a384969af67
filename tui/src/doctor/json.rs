//! Doctor's JSON: its keys are a promise.

use std::io::{self, Write};

use serde::Serialize;

use super::Report;
use super::finding::{Finding, Level};

/// Writes one object and a line break.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    let cupti = report.copies.iter().flat_map(|(pid, copies)| {
        copies.all.iter().enumerate().map(|(i, copy)| OfCopy {
            pid: *pid,
            path: copy.path.to_string_lossy().into_owned(),
            version: copy.version.map(|version| version.0),
            release: copy.release.clone().or_else(|| copy.version.map(|version| version.to_string())),
            how: &copy.how,
            verdict: copy.version.map_or("unknown", |version| version.verdict().name()),
            mapped: copy.mapped,
            chosen: copies.chosen == Some(i),
        })
    });
    let doctor = Doctor {
        schema: "gtop.doctor/1",
        level: report.level(),
        findings: &report.findings,
        cupti: cupti.collect(),
    };
    serde_json::to_writer(&mut *out, &doctor)?;
    writeln!(out)
}

#[derive(Serialize)]
struct Doctor<'a> {
    schema: &'static str,
    level: Level,
    findings: &'a [Finding],
    cupti: Vec<OfCopy<'a>>,
}

#[derive(Serialize)]
struct OfCopy<'a> {
    pid: Option<u32>,
    path: String,
    version: Option<u32>,
    release: Option<String>,
    how: &'a str,
    verdict: &'static str,
    mapped: bool,
    chosen: bool,
}
