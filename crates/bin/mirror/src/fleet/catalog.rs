//! Metric families that each pod of the fleet exports in addition to its HTTP metrics.
//!
//! Invariant: together with the HTTP metrics they have [`super::SERIES_PER_POD`] series.

/// How the value of a series changes from scrape to scrape. The models imitate the counters and
/// gauges of real exporters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SeriesModel {
    /// Constant value, such as that of an info metric.
    Constant(f64),
    /// Counter of CPU seconds at this share of a core. It has two decimals or full precision,
    /// depending on the pod.
    Cpu(f64),
    /// Counter of whole units with this mean rate per second.
    Traffic(f64),
    /// Counter that increases by one with this probability per scrape.
    Rare(f64),
    /// Gauge that wanders around a value in multiples of a grain, such as a page or an object.
    Walk {
        /// The value around which it wanders. The first value deviates from it by at most 40 %.
        around: f64,
        /// The unit of which each value is a multiple.
        grain: f64,
    },
    /// Gauge with full precision that varies randomly around a value, such as a duration.
    Noise(f64),
    /// Counter with full precision that grows by random amounts around a value, such as a sum of
    /// durations.
    NoiseSum(f64),
    /// Time of the scrape in seconds since the epoch.
    Now,
    /// Start time of the pod in seconds since the epoch.
    Created,
}

/// Placeholder in label values for the address of the pod's node.
pub const NODE_ADDRESS: &str = "{node address}";

/// A metric family. It has one series for each combination of its own label values.
#[derive(Clone, Copy, Debug)]
pub struct CatalogFamily {
    /// Metric name of all series of the family, without labels.
    pub name: &'static str,
    /// Names and values of at most two labels that are specific to the family.
    pub own: &'static [(&'static str, &'static [&'static str])],
    /// How the values of its series change from scrape to scrape.
    pub model: SeriesModel,
}

const fn plain(name: &'static str, model: SeriesModel) -> CatalogFamily {
    CatalogFamily {
        name,
        own: &[],
        model,
    }
}

const fn with(
    name: &'static str,
    own: &'static [(&'static str, &'static [&'static str])],
    model: SeriesModel,
) -> CatalogFamily {
    CatalogFamily { name, own, model }
}

const fn pages(around: f64) -> SeriesModel {
    SeriesModel::Walk {
        around,
        grain: 4096.0,
    }
}

const fn units(around: f64) -> SeriesModel {
    SeriesModel::Walk { around, grain: 1.0 }
}

const INTERFACES: &[(&str, &[&str])] = &[("interface", &["eth0", "lo"])];
const DEVICES: &[(&str, &[&str])] = &[("device", &["/dev/nvme0n1", "/dev/nvme1n1"])];
const RESOURCES: &[(&str, &[&str])] = &[("resource", &["cpu", "memory"])];
const MIB: f64 = 1_048_576.0;

/// All families, in the order in which a pod exposes them.
pub const FAMILIES: &[CatalogFamily] = &[
    plain("up", SeriesModel::Constant(1.0)),
    plain("scrape_duration_seconds", SeriesModel::Noise(0.012)),
    plain("scrape_samples_scraped", SeriesModel::Constant(371.0)),
    plain(
        "scrape_samples_post_metric_relabeling",
        SeriesModel::Constant(371.0),
    ),
    plain("scrape_series_added", SeriesModel::Constant(0.0)),
    with(
        "build_info",
        &[("version", &["2.14.3"]), ("revision", &["9f1c2ab"])],
        SeriesModel::Constant(1.0),
    ),
    with(
        "kube_pod_info",
        &[
            ("host_ip", &[NODE_ADDRESS]),
            ("priority_class", &["standard"]),
        ],
        SeriesModel::Constant(1.0),
    ),
    with(
        "kube_pod_status_phase",
        &[(
            "phase",
            &["Failed", "Pending", "Running", "Succeeded", "Unknown"],
        )],
        SeriesModel::Constant(1.0),
    ),
    plain(
        "kube_pod_container_status_restarts_total",
        SeriesModel::Rare(0.0005),
    ),
    with(
        "kube_pod_container_resource_requests",
        RESOURCES,
        SeriesModel::Constant(0.5),
    ),
    with(
        "kube_pod_container_resource_limits",
        RESOURCES,
        SeriesModel::Constant(2.0),
    ),
    with(
        "container_cpu_usage_seconds_total",
        &[("cpu", &["cpu00", "cpu01", "cpu02", "cpu03"])],
        SeriesModel::Cpu(0.15),
    ),
    plain(
        "container_cpu_cfs_periods_total",
        SeriesModel::Traffic(10.0),
    ),
    plain(
        "container_cpu_cfs_throttled_periods_total",
        SeriesModel::Rare(0.1),
    ),
    plain(
        "container_cpu_cfs_throttled_seconds_total",
        SeriesModel::Cpu(0.002),
    ),
    plain("container_memory_working_set_bytes", pages(312.0 * MIB)),
    plain("container_memory_rss", pages(280.0 * MIB)),
    plain("container_memory_cache", pages(41.0 * MIB)),
    plain("container_memory_usage_bytes", pages(353.0 * MIB)),
    plain("container_memory_mapped_file", pages(9.0 * MIB)),
    plain("container_memory_swap", SeriesModel::Constant(0.0)),
    plain(
        "container_memory_max_usage_bytes",
        SeriesModel::Constant(431.0 * MIB),
    ),
    plain("container_memory_failcnt", SeriesModel::Constant(0.0)),
    with(
        "container_memory_failures_total",
        &[
            ("failure_type", &["pgfault", "pgmajfault"]),
            ("scope", &["container", "hierarchy"]),
        ],
        SeriesModel::Traffic(0.8),
    ),
    with(
        "container_network_receive_bytes_total",
        INTERFACES,
        SeriesModel::Traffic(48_000.0),
    ),
    with(
        "container_network_receive_packets_total",
        INTERFACES,
        SeriesModel::Traffic(95.0),
    ),
    with(
        "container_network_receive_errors_total",
        INTERFACES,
        SeriesModel::Constant(0.0),
    ),
    with(
        "container_network_receive_packets_dropped_total",
        INTERFACES,
        SeriesModel::Constant(0.0),
    ),
    with(
        "container_network_transmit_bytes_total",
        INTERFACES,
        SeriesModel::Traffic(61_000.0),
    ),
    with(
        "container_network_transmit_packets_total",
        INTERFACES,
        SeriesModel::Traffic(88.0),
    ),
    with(
        "container_network_transmit_errors_total",
        INTERFACES,
        SeriesModel::Constant(0.0),
    ),
    with(
        "container_network_transmit_packets_dropped_total",
        INTERFACES,
        SeriesModel::Rare(0.01),
    ),
    with(
        "container_fs_reads_bytes_total",
        DEVICES,
        SeriesModel::Rare(0.2),
    ),
    with(
        "container_fs_writes_bytes_total",
        DEVICES,
        SeriesModel::Traffic(900.0),
    ),
    with("container_fs_reads_total", DEVICES, SeriesModel::Rare(0.1)),
    with(
        "container_fs_writes_total",
        DEVICES,
        SeriesModel::Traffic(0.3),
    ),
    with("container_fs_usage_bytes", DEVICES, pages(77.0 * MIB)),
    with(
        "container_fs_limit_bytes",
        DEVICES,
        SeriesModel::Constant(107_361_579_008.0),
    ),
    plain("container_threads", units(38.0)),
    plain("container_processes", SeriesModel::Constant(2.0)),
    plain("container_sockets", units(24.0)),
    plain("container_file_descriptors", units(61.0)),
    plain("container_last_seen", SeriesModel::Now),
    plain("container_start_time_seconds", SeriesModel::Created),
    plain("container_spec_cpu_quota", SeriesModel::Constant(200_000.0)),
    plain(
        "container_spec_cpu_period",
        SeriesModel::Constant(100_000.0),
    ),
    plain("container_spec_cpu_shares", SeriesModel::Constant(512.0)),
    plain(
        "container_spec_memory_limit_bytes",
        SeriesModel::Constant(512.0 * MIB),
    ),
    plain("go_goroutines", units(212.0)),
    plain("go_threads", SeriesModel::Constant(14.0)),
    with(
        "go_info",
        &[("version", &["go1.26.8"])],
        SeriesModel::Constant(1.0),
    ),
    plain("go_memstats_alloc_bytes", units(88_000_000.0)),
    plain(
        "go_memstats_alloc_bytes_total",
        SeriesModel::Traffic(7_300_000.0),
    ),
    plain("go_memstats_heap_alloc_bytes", units(88_000_000.0)),
    plain("go_memstats_heap_idle_bytes", pages(51.0 * MIB)),
    plain("go_memstats_heap_inuse_bytes", pages(97.0 * MIB)),
    plain("go_memstats_heap_objects", units(641_000.0)),
    plain("go_memstats_heap_released_bytes", pages(33.0 * MIB)),
    plain(
        "go_memstats_heap_sys_bytes",
        SeriesModel::Constant(155.0 * MIB),
    ),
    plain("go_memstats_mallocs_total", SeriesModel::Traffic(52_000.0)),
    plain("go_memstats_frees_total", SeriesModel::Traffic(51_900.0)),
    plain("go_memstats_next_gc_bytes", SeriesModel::Rare(0.3)),
    plain(
        "go_memstats_last_gc_time_seconds",
        SeriesModel::Noise(1.7e9),
    ),
    plain(
        "go_memstats_stack_inuse_bytes",
        SeriesModel::Constant(2_031_616.0),
    ),
    plain(
        "go_memstats_sys_bytes",
        SeriesModel::Constant(171_402_520.0),
    ),
    plain(
        "go_memstats_gc_sys_bytes",
        SeriesModel::Constant(6_512_384.0),
    ),
    plain("go_memstats_mspan_inuse_bytes", units(1_200_000.0)),
    plain(
        "go_memstats_mcache_inuse_bytes",
        SeriesModel::Constant(4_800.0),
    ),
    plain(
        "go_memstats_other_sys_bytes",
        SeriesModel::Constant(1_903_211.0),
    ),
    with(
        "go_gc_duration_seconds",
        &[("quantile", &["0", "0.25", "0.5", "0.75", "1"])],
        SeriesModel::Constant(0.000_104_553),
    ),
    plain("go_gc_duration_seconds_sum", SeriesModel::NoiseSum(0.000_2)),
    plain("go_gc_duration_seconds_count", SeriesModel::Rare(0.5)),
    plain("process_cpu_seconds_total", SeriesModel::Cpu(0.4)),
    plain("process_resident_memory_bytes", pages(290.0 * MIB)),
    plain(
        "process_virtual_memory_bytes",
        SeriesModel::Constant(1_319_436_288.0),
    ),
    plain("process_open_fds", units(58.0)),
    plain("process_max_fds", SeriesModel::Constant(1_048_576.0)),
    plain("process_start_time_seconds", SeriesModel::Created),
    plain(
        "process_virtual_memory_max_bytes",
        SeriesModel::Constant(1.844_674_407_370_955_2e19),
    ),
    with(
        "queue_depth",
        &[("queue", &["emails", "invoices", "retries"])],
        units(17.0),
    ),
];

/// Returns all combinations of the values of a family's own labels, in order.
pub fn combinations(family: &CatalogFamily) -> Vec<Vec<(&'static str, &'static str)>> {
    let mut out = vec![Vec::new()];
    for (name, values) in family.own {
        let mut longer = Vec::with_capacity(out.len() * values.len());
        for pairs in &out {
            for value in *values {
                let mut pairs = pairs.clone();
                pairs.push((*name, *value));
                longer.push(pairs);
            }
        }
        out = longer;
    }
    out
}
