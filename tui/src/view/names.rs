//! Labels for kernels: short, and different where the kernels are.

use std::collections::{HashMap, HashSet};

use super::text::{cut_end, cut_middle, width};
use crate::model::snapshot::KernelName;

/// A label of at most `cells` cells for each name. Names that would look the same show where they begin to
/// differ instead of their middle, and as a last resort a few digits of their hash.
pub(crate) fn labels(names: &[&KernelName], cells: usize) -> Vec<String> {
    let mut labels: Vec<String> = names.iter().map(|name| cut_middle(&name.short, cells, "…")).collect();
    for same in groups(&labels, names) {
        let mut texts: Vec<&str> = same.iter().map(|&i| names[i].short.as_str()).collect();
        if texts.iter().collect::<HashSet<_>>().len() < texts.len() {
            texts = same.iter().map(|&i| without_arguments(&names[i].full)).collect();
        }
        let common = common_prefix(&texts);
        for (&i, text) in same.iter().zip(texts) {
            labels[i] = differing(&names[i].short, text, common, cells);
        }
    }
    for same in groups(&labels, names) {
        for &i in &same {
            let digits = hash(&names[i].full) & 0xfff;
            labels[i] = cut_middle(&names[i].full, cells, &format!("…{digits:03x}…"));
        }
    }
    labels
}

/// The places of labels that are equal although the full names differ.
fn groups(labels: &[String], names: &[&KernelName]) -> Vec<Vec<usize>> {
    let mut by_label: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, label) in labels.iter().enumerate() {
        by_label.entry(label).or_default().push(i);
    }
    by_label.into_values().filter(|same| same.iter().any(|&i| names[i].full != names[same[0]].full)).collect()
}

/// Bytes all texts begin with, cut back to where a word begins.
fn common_prefix(texts: &[&str]) -> usize {
    let Some((first, rest)) = texts.split_first() else { return 0 };
    let mut common = first.len();
    for text in rest {
        let same = first.bytes().zip(text.bytes()).take_while(|(a, b)| a == b).count();
        common = common.min(same);
    }
    let word = char::is_alphanumeric;
    while common > 0
        && (!first.is_char_boundary(common) || first[..common].chars().next_back().is_some_and(word))
    {
        common -= 1;
    }
    common
}

/// The beginning of the short name, `…`, and `text` from where it differs.
fn differing(short: &str, text: &str, common: usize, cells: usize) -> String {
    let rest = text.get(common..).unwrap_or_default();
    let head_cells = cells.saturating_sub(width(rest) + 1).max(cells / 3);
    // One cell more, and without the `…` that takes it: the one between head and rest is enough.
    let head = cut_end(short, head_cells + 1);
    let head = head.strip_suffix('…').unwrap_or(&head);
    let tail_cells = cells.saturating_sub(width(head) + 1);
    let tail = cut_middle(rest, tail_cells, "…");
    cut_end(&format!("{head}…{}", tail.strip_prefix('…').unwrap_or(&tail)), cells)
}

/// A demangled name without the parameters at its end.
fn without_arguments(full: &str) -> &str {
    let Some(inner) = full.strip_suffix(')') else { return full };
    let mut depth = 1;
    for (at, c) in inner.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &full[..at];
        }
    }
    full
}

/// FNV-1a, so that a label stays the same from run to run.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(short: &str, full: &str) -> KernelName {
        KernelName { mangled: full.to_owned(), full: full.to_owned(), short: short.to_owned() }
    }

    fn all(names: &[KernelName], cells: usize) -> Vec<String> {
        let labels = labels(&names.iter().collect::<Vec<_>>(), cells);
        assert!(labels.iter().all(|label| width(label) <= cells), "{labels:?}");
        labels
    }

    #[test]
    fn functors_of_one_template_are_told_apart() {
        let full = |functor: &str| {
            format!("void at::native::vectorized_elementwise_kernel<4, at::native::{functor}<int>>(int)")
        };
        let short = "vectorized_elementwise_kernel";
        let names = [name(short, &full("FillFunctor")), name(short, &full("AddFunctor"))];
        assert_eq!(
            all(&names, 40),
            ["vectorized_elementwise…FillFunctor<int>>", "vectorized_elementwise_…AddFunctor<int>>"]
        );
    }

    #[test]
    fn long_names_that_differ_anywhere_have_different_labels() {
        let stem = "a_very_long_template_argument_".repeat(65);
        for (a, b) in [
            ("x".to_owned() + &"y".repeat(50), "z".to_owned() + &"y".repeat(50)),
            ("y".repeat(50) + "x", "y".repeat(50) + "z"),
            ("y".repeat(20) + "x" + &"y".repeat(30), "y".repeat(20) + "z" + &"y".repeat(30)),
        ] {
            let names: Vec<KernelName> =
                [a, b].iter().map(|end| name(&(stem.clone() + end), &(stem.clone() + end))).collect();
            for cells in [12, 25, 40, 80] {
                let labels = all(&names, cells);
                assert_ne!(labels[0], labels[1], "{cells}");
            }
        }
    }

    #[test]
    fn equal_names_and_tiny_places_are_no_trouble() {
        let names = [name("a", "a"), name("a", "a"), name("", "")];
        assert_eq!(all(&names, 10), ["a", "a", ""]);
        for cells in 0..6 {
            all(&[name("same", "same(int)"), name("same", "same(long)")], cells);
        }
    }
}
