//! Kernel names as people say them, and texts of strangers made safe for a terminal.

use std::fmt::{self, Write};
use std::hash::{BuildHasher, BuildHasherDefault};

use cpp_demangle::{DemangleOptions, ParseOptions, Symbol};
use rustc_hash::{FxHashSet, FxHasher};

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

/// Gives names their three forms and sees to it that different names have different short forms.
#[derive(Debug, Default)]
pub struct Namer {
    taken: FxHashSet<String>,
}

impl Namer {
    /// The forms of one name, as CUPTI gave it. Call it once for each distinct name.
    pub fn name(&mut self, raw: &[u8]) -> KernelName {
        let mangled = safe(raw);
        let (full, compact) = demangle(raw);
        let full = full.map_or_else(|| mangled.clone(), |text| safe(text.as_bytes()));
        let compact = compact.map_or_else(|| full.clone(), |text| safe(text.as_bytes()));
        let short = self.unique(&compact, raw);
        KernelName { mangled, full, short }
    }

    fn unique(&mut self, compact: &str, raw: &[u8]) -> String {
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(raw);
        let of =
            |whole| if compact.trim().is_empty() { NO_NAME.to_owned() } else { short::of(compact, whole) };
        let forms: [&dyn Fn() -> String; 4] = [&|| of(false), &|| of(true), &|| compact.to_owned(), &|| {
            format!("{}~{:04x}", cut(&of(false), MAX_SHORT - 5), hash >> 48)
        }];
        let mut label = forms
            .iter()
            .map(|form| cut(&form(), MAX_SHORT))
            .find(|form| !form.trim().is_empty() && !self.taken.contains(form));
        // Sixteen bits of a hash can meet; a number cannot, and the table of names is finite.
        let mut number = 2;
        let short = loop {
            if let Some(label) = label.take().filter(|label| !self.taken.contains(label)) {
                break label;
            }
            label = Some(format!("{}~{number}", cut(&of(false), MAX_SHORT - 8)));
            number += 1;
        };
        self.taken.insert(short.clone());
        short
    }
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

    fn short(raw: &str) -> String {
        Namer::default().name(raw.as_bytes()).short
    }

    #[test]
    fn what_has_no_name_is_told_so_and_apart() {
        let mut namer = Namer::default();
        let called = [&b""[..], b"  ", b"k"].map(|raw| namer.name(raw));
        assert_eq!((called[0].short.as_str(), called[0].full.as_str()), ("(no name)", ""));
        assert!(called[1].short.starts_with("(no name)~"), "{}", called[1].short);
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
    }
}
