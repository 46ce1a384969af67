//! Kernel names as people say them, and texts of strangers made safe for a terminal.

use std::collections::hash_map::Entry;
use std::fmt::{self, Write};
use std::hash::{BuildHasher, BuildHasherDefault};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use rustc_hash::{FxHashMap, FxHasher};

use super::short;
use super::snapshot::KernelName;

/// The longest demangled name kept, bytes; a few bytes of substitutions can unfold without end.
const MAX_FULL: usize = 16 << 10;
/// How deep a name may nest. The demangler recurses on the stack.
const MAX_DEPTH: u32 = 192;
/// What a name without any sign is called.
const NO_NAME: &str = "(no name)";
/// The longest short form, characters: panes cut it to their width.
pub const MAX_SHORT: usize = 120;

/// Bytes of unknown origin as text for a terminal: broken UTF-8 is replaced, and what would move the cursor,
/// ring or reverse the writing direction is shown as a symbol.
#[must_use]
pub fn safe(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(visible).collect()
}

/// The character itself, or a symbol in place of a control character.
const fn visible(c: char) -> char {
    match c {
        '\0'..='\x1f' => match char::from_u32(0x2400 + c as u32) {
            Some(symbol) => symbol,
            None => char::REPLACEMENT_CHARACTER,
        },
        '\x7f' => '\u{2421}',
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => char::REPLACEMENT_CHARACTER,
        _ => c,
    }
}

/// Gives names their three forms and sees to it that different names have different short forms. Which of them a name
/// has does not depend on the order in which names come: a form that several names would have is nobody's.
#[derive(Debug, Default)]
pub struct Namer {
    /// Short forms with the number of the name that has it; without where several would.
    taken: FxHashMap<String, Option<usize>>,
    /// By number, which counts the calls of [`Namer::name`].
    labels: Vec<Label>,
    relabelled: Vec<Relabelled>,
}

/// The short form of a name.
#[derive(Debug)]
struct Label {
    now: String,
    /// Longer ones, the next to be tried last.
    longer: Vec<String>,
}

/// A name that shares its short form with one that came later, and has another one now.
#[derive(Debug, PartialEq, Eq)]
pub struct Relabelled {
    /// Which call of [`Namer::name`] gave it, from 0.
    pub name: usize,
    /// Its short form until now.
    pub from: String,
    /// Its short form from now on.
    pub to: String,
}

impl Namer {
    /// The forms of one name, as CUPTI gave it. Call it once for each distinct name.
    pub fn name(&mut self, raw: &[u8]) -> KernelName {
        let mangled = safe(raw);
        let (full, compact) = demangle(raw);
        let full = full.map_or_else(|| mangled.clone(), |text| safe(text.as_bytes()));
        let compact = compact.map_or_else(|| full.clone(), |text| safe(text.as_bytes()));
        let short = self.settle(short_forms(&compact, raw));
        KernelName { mangled, full, short }
    }

    /// The names before the last one whose short forms are others now, once.
    pub fn relabelled(&mut self) -> Vec<Relabelled> {
        std::mem::take(&mut self.relabelled)
    }

    /// The short form of a new name that may have these, the last of them first.
    fn settle(&mut self, forms: Vec<String>) -> String {
        let new = self.labels.len();
        self.labels.push(Label { now: NO_NAME.to_owned(), longer: forms });
        let mut unsettled = vec![new];
        while let Some(name) = unsettled.pop() {
            let label = self.next_form(name, &mut unsettled);
            let from = std::mem::replace(&mut self.labels[name].now, label.clone());
            if name != new {
                self.relabelled.push(Relabelled { name, from, to: label });
            }
        }
        self.labels[new].now.clone()
    }

    /// The first form a name has for itself. Who had one of those before must look for another one, too.
    fn next_form(&mut self, name: usize, unsettled: &mut Vec<usize>) -> String {
        let mut last = self.labels[name].now.clone();
        while let Some(form) = self.labels[name].longer.pop() {
            last.clone_from(&form);
            match self.taken.entry(form) {
                Entry::Vacant(free) => {
                    let form = free.key().clone();
                    free.insert(Some(name));
                    return form;
                }
                Entry::Occupied(mut taken) => unsettled.extend(taken.get_mut().take()),
            }
        }
        // Sixteen bits of a hash can meet; a number cannot, and the table of names is finite.
        let last = cut(&last, MAX_SHORT - 8);
        let mut numbered = (2..).map(|number| format!("{last}~{number}"));
        let free = numbered.find(|form| !self.taken.contains_key(form)).unwrap_or(last);
        self.taken.insert(free.clone(), Some(name));
        free
    }
}

/// The short forms a name may have, the shortest last: as people say it, with the numbers of its wrapper, and with
/// digits of its hash.
fn short_forms(compact: &str, raw: &[u8]) -> Vec<String> {
    let hash = BuildHasherDefault::<FxHasher>::default().hash_one(raw);
    let of = |whole| match short::of(compact, whole) {
        form if form.trim().is_empty() => NO_NAME.to_owned(),
        form => form,
    };
    let hashed = format!("{}~{:04x}", cut(&of(true), MAX_SHORT - 5), hash >> 48);
    vec![hashed, cut(&of(true), MAX_SHORT), cut(&of(false), MAX_SHORT)]
}

/// At most `width` characters of `text`: the head and the tail, for names often differ only there.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    let length = text.chars().count();
    if length <= width {
        return text.to_owned();
    }
    let tail = width * 3 / 8;
    let head = width.saturating_sub(tail + 1);
    text.chars().take(head).chain(['…']).chain(text.chars().skip(length - tail)).collect()
}

/// The name as C++ says it, exactly; `None` when it is not mangled.
#[must_use]
pub fn demangled(raw: &[u8]) -> Option<String> {
    demangle(raw).0
}

/// The name as C++ says it, and without parameters and return type; `None` when it is not mangled.
fn demangle(raw: &[u8]) -> (Option<String>, Option<String>) {
    if !raw.starts_with(b"_Z") {
        return (None, None);
    }
    let options = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let Ok(symbol) = Symbol::new_with_options(raw, &options) else { return (None, None) };
    let options = DemangleOptions::new().recursion_limit(MAX_DEPTH);
    let render = |options: &DemangleOptions| {
        let mut out = Bounded(String::new());
        symbol.structured_demangle(&mut out, options).ok().map(|()| out.0)
    };
    let full = render(&options);
    let compact = render(&options.no_params().no_return_type());
    (full, compact)
}

/// A string that refuses to grow beyond [`MAX_FULL`].
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_FULL {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustc_hash::FxHashSet;

    fn short(raw: &str) -> String {
        Namer::default().name(raw.as_bytes()).short
    }

    #[test]
    fn what_has_no_name_is_told_so_and_apart() {
        let mut namer = Namer::default();
        let called = [&b""[..], b"  ", b"k"].map(|raw| namer.name(raw));
        assert_eq!((called[0].short.as_str(), called[0].full.as_str()), ("(no name)", ""));
        assert!(called[1].short.starts_with("(no name)~"), "{}", called[1].short);
        let relabelled = namer.relabelled();
        assert_eq!((relabelled.len(), relabelled[0].name, relabelled[0].from.as_str()), (1, 0, "(no name)"));
        assert!(relabelled[0].to.starts_with("(no name)~"), "{relabelled:?}");
        assert!(namer.relabelled().is_empty());
        assert_eq!(called[2].short, "k");
    }

    #[test]
    fn names_of_the_field_read_as_people_say_them() {
        let names = [
            ("triton_red_fused_fused_add_rms_norm_0", "triton_red_fused_fused_add_rms_norm_0"),
            ("_topk_topp_kernel", "_topk_topp_kernel"),
            (
                "_ZN7cutlass13device_kernelIN5flash19FlashAttnFwdCombineIN4cute5tupleIJNS3_1CILi8EEENS5_ILi128EEEEEELi5ELi256ELi1ELb0ELb1ENS_10bfloat16_tEfNS_4arch4Sm90EEEEEvNT_6ParamsE",
                "FlashAttnFwdCombine<8x128,5,256,bf16>",
            ),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi2ENS0_11FillFunctorIlEESt5arrayIPcLm1EEEEviT0_T1_",
                "elementwise: FillFunctor<i64>",
            ),
            (
                "_ZN8cublasLt19splitKreduce_kernelILi32ELi16Eif13__nv_bfloat16fS1_Lb0EfS1_S1_Lb1ELb0ELb0ELb0EEEvNS_18cublasSplitKParamsIT4_EEPKT2_PKT8_PT7_PT3_PKS3_SG_PKT9_S7_PSH_PvlPS3_PiSM_SM_SG_SG_SG_SG_SG_",
                "splitKreduce<32,16,f32>",
            ),
            (
                "_ZN4vllm30reshape_and_cache_flash_kernelI13__nv_bfloat16S1_LNS_18Fp8KVCacheDataTypeE0EEEvPKT_S5_PT0_S7_PKlllllliiiPKfSB_i",
                "reshape_and_cache_flash<bf16>",
            ),
            (
                "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_9ArgMaxOpsIfEEjlLi4ELi4EEEEEvT1_",
                "reduce: ArgMaxOps<f32>",
            ),
            (
                "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_13BinaryFunctorIfffNS0_15binary_internal10DivFunctorIfEEEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_",
                "elementwise: DivFunctor<f32>",
            ),
            (
                "_ZN2at6native29vectorized_elementwise_kernelILi4EZNS0_21compare_scalar_kernelIfEEvRNS_18TensorIteratorBaseENS0_50_GLOBAL__N__e50ef81d_17_CompareKernels_cu_8f1b29aa6OpTypeET_EUlfE_St5arrayIPcLm2EEEEviT0_T1_",
                "elementwise: compare_scalar<f32>",
            ),
        ];
        for (raw, label) in names {
            assert_eq!(short(raw), label, "{}", Namer::default().name(raw.as_bytes()).full);
        }
    }

    #[test]
    fn long_names_that_differ_only_in_the_tail_get_different_labels() {
        let mut namer = Namer::default();
        let (a, b) = (
            format!("{}{}a", "k".repeat(1950), "x".repeat(49)),
            format!("{}{}", "k".repeat(1950), "y".repeat(50)),
        );
        let c = format!("{}{}z{}", "k".repeat(1900), "x".repeat(40), "x".repeat(59));
        let all: Vec<_> = [a, b, c].iter().map(|raw| namer.name(raw.as_bytes())).collect();
        for (i, name) in all.iter().enumerate() {
            assert!(name.short.chars().count() <= MAX_SHORT);
            assert_eq!(name.full.len(), 2000);
            assert!(all[..i].iter().all(|other| other.short != name.short), "{}", name.short);
        }
    }

    /// The short forms of names that come in this order, as they are in the end.
    fn in_the_end(raws: &[&str]) -> Vec<String> {
        let mut namer = Namer::default();
        let mut labels: Vec<String> = Vec::new();
        for raw in raws {
            labels.push(namer.name(raw.as_bytes()).short);
            for Relabelled { name, from, to } in namer.relabelled() {
                assert_eq!(std::mem::replace(&mut labels[name], to), from);
            }
        }
        labels
    }

    #[test]
    fn kernels_that_are_said_alike_are_told_apart_whichever_comes_first() {
        let copy = |kernel: &str, args: &str| {
            let kernel = format!("{}{kernel}", kernel.len());
            format!(
                "_ZN2at6native{kernel}I{args}ZNS0_23direct_copy_kernel_cudaERNS_18TensorIteratorBaseEEUliE_EEvT_"
            )
        };
        let (unrolled, plain, vectorized) = (
            copy("unrolled_elementwise_kernel", ""),
            copy("elementwise_kernel", ""),
            copy("vectorized_elementwise_kernel", "Li4E"),
        );
        let mut labels = in_the_end(&[&unrolled, &vectorized, &plain]);
        assert_eq!(labels[1], "elementwise<4>: direct_copy");
        assert!(labels[0].starts_with("elementwise: direct_copy~"), "{labels:?}");
        assert!(labels[2].starts_with("elementwise: direct_copy~"), "{labels:?}");
        assert_ne!(labels[0], labels[2]);
        labels.reverse();
        assert_eq!(in_the_end(&[&plain, &vectorized, &unrolled]), labels);
        assert_eq!(in_the_end(&[&vectorized]), ["elementwise: direct_copy"], "alone it is called so");
    }

    #[test]
    fn control_characters_become_symbols() {
        let name = Namer::default().name(b"a\x1b[2Jb\x07\n\x7f\xc2\x9b\xe2\x80\xaec\xff");
        assert_eq!(name.short, "a␛[2Jb␇␊␡\u{fffd}\u{fffd}c\u{fffd}");
    }

    #[test]
    fn a_name_that_unfolds_without_end_is_kept_as_it_came() {
        // Each template argument list doubles the one before.
        let mut raw = String::from("_Z1f");
        for i in 0..60 {
            let seq = if i == 0 {
                "S_".into()
            } else {
                format!("S{}_", char::from_digit(i - 1, 36).unwrap_or('z'))
            };
            write!(raw, "I{seq}{seq}E").unwrap();
        }
        let name = Namer::default().name(raw.as_bytes());
        assert!(name.full.len() <= MAX_FULL);
        let deep = format!("_Z1f{}i", "P".repeat(100_000));
        assert_eq!(Namer::default().name(deep.as_bytes()).full, deep);
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_name(raw: Vec<u8>) {
            let name = Namer::default().name(&raw);
            prop_assert!(name.short.chars().count() <= MAX_SHORT);
            prop_assert!(!name.full.chars().any(char::is_control));
        }

        #[test]
        fn anything_like_cxx_has_a_short_form(text in "_ZN[0-9a-zA-Z_]{0,60}|[a-z<>(){}:, *&]{0,80}") {
            prop_assert!(Namer::default().name(text.as_bytes()).short.chars().count() <= MAX_SHORT);
        }

        #[test]
        fn distinct_names_have_distinct_labels(names in prop::collection::hash_set("k{30}[ab]{6}k{30}", 1..40)) {
            let mut namer = Namer::default();
            let labels: FxHashSet<String> = names.iter().map(|raw| namer.name(raw.as_bytes()).short).collect();
            prop_assert_eq!(labels.len(), names.len());
        }

        #[test]
        fn the_order_of_names_does_not_matter(
            names in prop::collection::hash_set("[ab]<[12],[12]>|x<y<[12]>,[0-3]>", 1..20),
        ) {
            let forwards: Vec<&str> = names.iter().map(String::as_str).collect();
            let backwards: Vec<&str> = forwards.iter().rev().copied().collect();
            let mut labels = in_the_end(&backwards);
            labels.reverse();
            prop_assert_eq!(&in_the_end(&forwards), &labels);
            prop_assert_eq!(labels.iter().collect::<FxHashSet<_>>().len(), names.len());
        }
    }
}
