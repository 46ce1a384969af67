//! Records are held against the structs that bindgen made of NVIDIA's headers, as cudarc has them.
#![allow(unsafe_code, reason = "records are read as C structs")]

use super::*;
use cudarc::cupti::sys;

const PLACE: Place = Place { device: 3, context: 5, stream: 7, graph: 11, node: 0x1_0000_000D, channel: 17 };

/// A record read as a struct; what lies behind its end reads as 0.
fn read<T>(record: &Record) -> T {
    assert!(size_of::<T>() <= MAX);
    // SAFETY: there are MAX bytes, at least as many as the struct has, and the structs hold integers, C pointers and
    // enums whose values the records have.
    unsafe { record.bytes.as_ptr().cast::<T>().read_unaligned() }
}

/// Fields of a packed struct, as values.
macro_rules! fields {
    ($record:expr, $($field:ident = $value:expr),* $(,)?) => {
        $({
            let field = $record.$field;
            assert_eq!(field, $value, stringify!($field));
        })*
    };
}

#[test]
fn strides_are_the_sizes_of_each_versions_newest_struct() {
    let sizes = [
        (kind::KERNEL, 26, size_of::<sys::CUpti_ActivityKernel9>()),
        (kind::KERNEL, 28, size_of::<sys::CUpti_ActivityKernel9>()),
        (kind::KERNEL, 130_000, size_of::<sys::CUpti_ActivityKernel10>()),
        (kind::KERNEL, 130_001, size_of::<sys::CUpti_ActivityKernel10>()),
        (kind::KERNEL, 130_101, size_of::<sys::CUpti_ActivityKernel11>()),
        (kind::KERNEL, 130_202, size_of::<sys::CUpti_ActivityKernel11>()),
        (kind::KERNEL, 130_301, size_of::<sys::CUpti_ActivityKernel12>()),
        (kind::KERNEL, 130_401, size_of::<sys::CUpti_ActivityKernel13>()),
        (kind::KERNEL, 130_500, size_of::<sys::CUpti_ActivityKernel13>()),
        (kind::MEMCPY, 22, size_of::<sys::CUpti_ActivityMemcpy5>()),
        (kind::MEMCPY, 26, size_of::<sys::CUpti_ActivityMemcpy6>()),
        (kind::MEMCPY, 130_301, size_of::<sys::CUpti_ActivityMemcpy6>()),
        (kind::MEMCPY, 130_400, size_of::<sys::CUpti_ActivityMemcpy7>()),
        (kind::MEMCPY2, 22, size_of::<sys::CUpti_ActivityMemcpyPtoP4>()),
        (kind::MEMCPY2, 130_500, size_of::<sys::CUpti_ActivityMemcpyPtoP4>()),
        (kind::MEMSET, 22, size_of::<sys::CUpti_ActivityMemset4>()),
        (kind::MEMSET, 130_301, size_of::<sys::CUpti_ActivityMemset4>()),
        (kind::MEMSET, 130_400, size_of::<sys::CUpti_ActivityMemset5>()),
        (kind::DRIVER, 130_001, size_of::<sys::CUpti_ActivityAPI>()),
        (kind::RUNTIME, 130_001, size_of::<sys::CUpti_ActivityAPI>()),
        (kind::OVERHEAD, 18, size_of::<sys::CUpti_ActivityOverhead>()),
        (kind::OVERHEAD, 22, size_of::<sys::CUpti_ActivityOverhead3>()),
        (kind::SYNC, 22, size_of::<sys::CUpti_ActivitySynchronization>()),
        (kind::SYNC, 26, size_of::<sys::CUpti_ActivitySynchronization2>()),
        (kind::MEMORY2, 22, size_of::<sys::CUpti_ActivityMemory3>()),
        (kind::MEMORY2, 26, size_of::<sys::CUpti_ActivityMemory4>()),
        (kind::GRAPH_TRACE, 18, size_of::<sys::CUpti_ActivityGraphTrace>()),
        (kind::GRAPH_TRACE, 22, size_of::<sys::CUpti_ActivityGraphTrace2>()),
    ];
    for (kind, version, size) in sizes {
        assert_eq!(stride(kind, Version(version)), Some(size), "kind {kind} of {version}");
    }
    assert_eq!(stride(0, Version(130_001)), None);
}

#[test]
fn a_kernel_is_where_the_header_has_it() {
    let kernel = Kernel {
        name: 0x1234,
        grid: [21, 22, 23],
        block: [31, 32, 33],
        cluster: [2, 3, 4],
        registers: 40,
        static_shared: 1_024,
        dynamic_shared: 2_048,
    };
    for version in [26, 130_001, 130_101, 130_301, 130_401] {
        let mut record = Record::kernel(Version(version), PLACE, &kernel);
        record.stamp(1_000, 2_000, 99, 77);
        let read: sys::CUpti_ActivityKernel13 = read(&record);
        fields!(
            read,
            kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
            registersPerThread = 40,
            start = 1_000,
            end = 2_000,
            completed = 2_000,
            deviceId = 3,
            contextId = 5,
            streamId = 7,
            gridX = 21,
            gridY = 22,
            gridZ = 23,
            blockX = 31,
            blockY = 32,
            blockZ = 33,
            staticSharedMemory = 1_024,
            dynamicSharedMemory = 2_048,
            sharedMemoryExecuted = 3_072,
            correlationId = 99,
            gridId = 77,
            name = 0x1234 as *const _,
            graphNodeId = 0x1_0000_000D,
            graphId = 11,
            channelID = 17,
            channelType = sys::CUpti_ChannelType::CUPTI_CHANNEL_TYPE_COMPUTE,
            clusterX = 2,
            clusterY = 3,
            clusterZ = 4,
        );
    }
}

#[test]
fn copies_are_where_the_header_has_them() {
    let mut copy = Copy { kind: Copy::DEVICE_TO_HOST, from: 3, to: 2, flags: 1, bytes: 4_096 };
    let mut record = Record::copy(Version(130_401), PLACE, &copy);
    record.stamp(1_000, 2_000, 99, 0);
    let seen: sys::CUpti_ActivityMemcpy7 = read(&record);
    fields!(
        seen,
        kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY,
        copyKind = 2,
        srcKind = 3,
        dstKind = 2,
        flags = 1,
        bytes = 4_096,
        start = 1_000,
        end = 2_000,
        deviceId = 3,
        contextId = 5,
        streamId = 7,
        correlationId = 99,
        graphNodeId = 0x1_0000_000D,
        graphId = 11,
        channelID = 17,
        channelType = sys::CUpti_ChannelType::CUPTI_CHANNEL_TYPE_ASYNC_MEMCPY,
        copyCount = 1,
    );

    copy.kind = Copy::PEER;
    let mut record = Record::copy(Version(130_401), PLACE, &copy);
    record.stamp(1_000, 2_000, 99, 0);
    let seen: sys::CUpti_ActivityMemcpyPtoP4 = read(&record);
    fields!(
        seen,
        kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMCPY2,
        copyKind = 10,
        bytes = 4_096,
        start = 1_000,
        end = 2_000,
        deviceId = 3,
        contextId = 5,
        streamId = 7,
        srcDeviceId = 3,
        srcContextId = 5,
        dstDeviceId = 4,
        dstContextId = 6,
        correlationId = 99,
        graphNodeId = 0x1_0000_000D,
        graphId = 11,
        channelID = 17,
    );
}

#[test]
fn a_memory_set_is_where_the_header_has_it() {
    let mut record = Record::memset(Version(130_401), PLACE, 4_096, 0xAB);
    record.stamp(1_000, 2_000, 99, 0);
    let seen: sys::CUpti_ActivityMemset5 = read(&record);
    fields!(
        seen,
        kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMSET,
        value = 0xAB,
        bytes = 4_096,
        start = 1_000,
        end = 2_000,
        deviceId = 3,
        contextId = 5,
        streamId = 7,
        correlationId = 99,
        memoryKind = 3,
        graphNodeId = 0x1_0000_000D,
        graphId = 11,
        channelID = 17,
    );
}

#[test]
fn what_the_host_does_is_where_the_header_has_it() {
    let version = Version(130_401);
    let mut record = Record::api(version, kind::DRIVER, 514);
    record.stamp(1_000, 2_000, 99, 0);
    let seen: sys::CUpti_ActivityAPI = read(&record);
    fields!(
        seen,
        kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_DRIVER,
        cbid = 514,
        start = 1_000,
        end = 2_000,
        processId = std::process::id(),
        correlationId = 99,
        returnValue = 0,
    );

    let mut record = Record::sync(version, PLACE);
    record.stamp(1_000, 2_000, 99, 0);
    let seen: sys::CUpti_ActivitySynchronization2 = read(&record);
    fields!(
        seen,
        kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_SYNCHRONIZATION,
        start = 1_000,
        end = 2_000,
        correlationId = 99,
        contextId = 5,
        streamId = 7,
    );

    let mut record = Record::memory(version, PLACE, true, [0x7000, 512], 0x5000);
    record.stamp(1_000, 1_000, 99, 0);
    let seen: sys::CUpti_ActivityMemory4 = read(&record);
    fields!(
        seen,
        kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_MEMORY2,
        correlationId = 99,
        address = 0x7000,
        bytes = 512,
        timestamp = 1_000,
        processId = std::process::id(),
        deviceId = 3,
        contextId = 5,
        streamId = 7,
        source = 0x5000 as *const std::ffi::c_char,
        isAsync = 0,
    );
    record.be_pooled();
    let seen: sys::CUpti_ActivityMemory4 = read(&record);
    let local = sys::CUpti_ActivityMemoryPoolType::CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    assert_eq!((seen.isAsync, seen.memoryPoolConfig.memoryPoolType), (1, local));
}

#[test]
fn what_cupti_says_of_itself_is_where_the_header_has_it() {
    let version = Version(130_401);
    let mut record = Record::overhead(version, 3 << 16, 3, 5);
    record.stamp(1_000, 2_000, 99, 0);
    let seen: sys::CUpti_ActivityOverhead3 = read(&record);
    fields!(
        seen,
        kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_OVERHEAD,
        overheadKind = sys::CUpti_ActivityOverheadKind::CUPTI_ACTIVITY_OVERHEAD_CUPTI_RESOURCE,
        objectKind = sys::CUpti_ActivityObjectKind::CUPTI_ACTIVITY_OBJECT_CONTEXT,
        start = 1_000,
        end = 2_000,
        correlationId = 99,
    );
    let of = seen.objectId;
    // SAFETY: an object of this kind has device, context and stream.
    let of = unsafe { of.dcs };
    fields!(of, deviceId = 3, contextId = 5);

    let mut record = Record::graph_trace(version, PLACE);
    record.stamp(1_000, 2_000, 99, 0);
    let seen: sys::CUpti_ActivityGraphTrace2 = read(&record);
    fields!(
        seen,
        kind = sys::CUpti_ActivityKind::CUPTI_ACTIVITY_KIND_GRAPH_TRACE,
        correlationId = 99,
        start = 1_000,
        end = 2_000,
        deviceId = 3,
        graphId = 11,
        contextId = 5,
        streamId = 7,
    );
}
