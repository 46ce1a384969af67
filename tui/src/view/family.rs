//! Families of kernels: what somebody who tunes a model groups them by. The table can be changed in `gtop.toml`.

use std::cell::RefCell;

use rustc_hash::{FxBuildHasher, FxHashMap};
use std::hash::BuildHasher;

use crate::filter::contains;
use crate::model::snapshot::KernelName;

/// The family of what no row of the table fits.
pub const OTHER: &str = "other";

/// Families and the patterns of their kernels' names, tried in this order: whatever the case, `*` for anything.
pub const FAMILIES: &[(&str, &[&str])] = &[
    (
        "communication",
        &[
            "nccl",
            "nvshmem",
            "all_reduce",
            "allreduce",
            "all_gather",
            "allgather",
            "reduce_scatter",
            "all2all",
            "deep_ep",
        ],
    ),
    ("attention", &["flash", "fmha", "attention", "attn", "mha_", "_mla", "mla_", "sdpa", "paged"]),
    ("normalisation", &["norm"]),
    (
        "gemm",
        &[
            "gemm", "nvjet", "gemv", "matmul", "cublas", "splitk", "wgmma", "xmma", "s16816", "mma_",
            "marlin", "_mm_",
        ],
    ),
    (
        "sampling",
        &["softmax", "topk", "topp", "top_k", "top_p", "argmax", "sampl", "multinomial", "penalt", "logits"],
    ),
    ("sort", &["sort", "scan", "cub::", "thrust::"]),
    ("quantisation", &["quant", "fp8", "dequant", "scaled_"]),
    (
        "copy",
        &[
            "memcpy",
            "memset",
            "copy",
            "catarray",
            "gather",
            "scatter",
            "index",
            "transpose",
            "permute",
            "cache",
            "fill",
            "embedding",
            "slot_mapping",
        ],
    ),
    ("reduction", &["reduce", "_red_", "triton_per_"]),
    (
        "elementwise",
        &[
            "elementwise",
            "pointwise",
            "triton_poi",
            "silu",
            "gelu",
            "relu",
            "rotary",
            "rope",
            "act_and",
            "activation",
            "bias",
            "arange",
            "where",
        ],
    ),
];

/// The table in use, and what it has answered.
#[derive(Clone, Debug)]
pub struct Families {
    table: Vec<(String, Vec<String>)>,
    known: RefCell<FxHashMap<u64, usize>>,
}

impl Default for Families {
    fn default() -> Self {
        Self::with([])
    }
}

impl Families {
    /// The table with these rows before its own; a row of the same name takes the place of gtop's.
    #[must_use]
    pub fn with(rows: impl IntoIterator<Item = (String, Vec<String>)>) -> Self {
        let mut table: Vec<(String, Vec<String>)> = rows.into_iter().collect();
        for (name, patterns) in FAMILIES {
            if !table.iter().any(|(mine, _)| mine == name) {
                table.push((
                    (*name).to_owned(),
                    patterns.iter().map(|pattern| (*pattern).to_owned()).collect(),
                ));
            }
        }
        Self { table, known: RefCell::default() }
    }

    /// The family of a kernel.
    #[must_use]
    pub fn of(&self, name: &KernelName) -> &str {
        let key = FxBuildHasher.hash_one(&name.full);
        let known = self.known.borrow().get(&key).copied();
        let row = known.unwrap_or_else(|| {
            let fits = |pattern: &String| contains(&name.full, pattern);
            let row = self.table.iter().position(|(_, patterns)| patterns.iter().any(fits));
            let row = row.unwrap_or(usize::MAX);
            self.known.borrow_mut().insert(key, row);
            row
        });
        self.table.get(row).map_or(OTHER, |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(full: &str) -> KernelName {
        KernelName { mangled: full.to_owned(), full: full.to_owned(), short: full.to_owned() }
    }

    #[test]
    fn kernels_of_the_field_are_in_the_family_people_expect() {
        let families = Families::default();
        for (kernel, family) in [
            ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "communication"),
            ("void cutlass::device_kernel<flash::FlashAttnFwdSm90<64>>(Params)", "attention"),
            ("nvjet_tst_192x8_64x8_4x1_v_bz_TNT", "gemm"),
            ("void cublasLt::splitKreduce_kernel<32, 16, int, float>(Params)", "gemm"),
            ("triton_red_fused_add_rms_norm_0", "normalisation"),
            ("triton_poi_fused_mul_silu_slice_1", "elementwise"),
            ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>(Params)", "attention"),
            ("void at::native::reduce_kernel<512, 1>(T)", "reduction"),
            ("void at::native::vectorized_elementwise_kernel<4>(int)", "elementwise"),
            ("_topk_topp_kernel", "sampling"),
            ("my_own_thing", OTHER),
        ] {
            assert_eq!(families.of(&name(kernel)), family, "{kernel}");
            assert_eq!(families.of(&name(kernel)), family, "asked again");
        }
    }

    #[test]
    fn rows_of_the_person_come_first() {
        let mine = [("mine".to_owned(), vec!["nvjet*v_bz".to_owned()]), ("gemm".to_owned(), Vec::new())];
        let families = Families::with(mine);
        assert_eq!(families.of(&name("nvjet_tst_v_bz")), "mine");
        assert_eq!(families.of(&name("nvjet_tst_h_bz")), OTHER, "its row of gemm is empty");
        assert_eq!(families.of(&name("flash_fwd")), "attention");
    }
}
