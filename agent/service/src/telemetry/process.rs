//! The numbers that every process has.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;
use tenure_host::machine;

/// The resources that the process uses, read at each scrape, under the names that clients of
/// Prometheus agreed on:
/// <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>. Those that the
/// system does not tell are left out.
#[derive(Debug)]
pub struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let usage = machine::usage();
        let mut gauge = |name, help, unit: Option<&Unit>, value: Option<f64>| match value {
            None => Ok(()),
            Some(value) => {
                let kind = MetricType::Gauge;
                ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, unit, kind)?)
            }
        };
        #[expect(clippy::cast_precision_loss, reason = "sizes and counts stay far below 2^53")]
        let number = |number: u64| number as f64;
        let bytes = Some(&Unit::Bytes);
        let resident = Some(number(usage.resident_bytes));
        gauge("process_resident_memory", "Resident memory", bytes, resident)?;
        let mapped = usage.virtual_bytes.map(number);
        gauge("process_virtual_memory", "Mapped memory", bytes, mapped)?;
        gauge("process_open_fds", "Open descriptors", None, usage.descriptors.map(number))?;
        let most = usage.descriptors_max.map(number);
        gauge("process_max_fds", "Most descriptors that may be open", None, most)?;
        let started = machine::started_at().map(|since_epoch| since_epoch.as_secs_f64());
        let help = "When the process started, in seconds since 1970";
        gauge("process_start_time", help, Some(&Unit::Seconds), started)?;
        let cpu = ConstCounter::new(usage.cpu.as_secs_f64());
        let help = "Processor time, of the program and of the kernel for it";
        let descriptor = encoder.encode_descriptor(
            "process_cpu",
            help,
            Some(&Unit::Seconds),
            MetricType::Counter,
        );
        cpu.encode(descriptor?)
    }
}
