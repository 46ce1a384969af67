//! Kinds that CUPTI refused to switch on.

use gtop_protocol::cupti::{Verdict, result_name};
use gtop_protocol::message::Severity;
use gtop_protocol::{Kind, KindSet};

use super::{Facts, found};
use crate::model::snapshot::Finding;

pub(super) fn rule(facts: &Facts<'_>) -> Vec<Finding> {
    let kinds = facts.kinds;
    if kinds.refused.is_empty() {
        return Vec::new();
    }
    let error = kinds.error.map(|error| format!(" ({} {error})", result_name(error))).unwrap_or_default();
    let sentence = format!("CUPTI refused {}{error}: records of that are missing", kinds.refused);
    let next = match kinds.cure() {
        Some(cure) => format!("To have them, {cure}."),
        None => "Switch it on again (gtop ctl enable) once what refuses it is gone.".to_owned(),
    };
    let mut finding = found(super::OF_KINDS, Severity::Warning, 0, sentence, &next);
    let leaks = KindSet::SAFE.minus(kinds.enabled);
    let uncovered = KindSet(leaks.0 & kinds.refused.0);
    if kinds.enabled.has(Kind::Kernel)
        && !uncovered.is_empty()
        && facts.verdict.is_some_and(|verdict| verdict != Verdict::Sound)
    {
        finding = finding.with(format!(
            "kernel is on without {uncovered} on a CUPTI that is not known to be sound: graphs with such nodes leak device \
             buffers"
        ));
    }
    vec![finding]
}
