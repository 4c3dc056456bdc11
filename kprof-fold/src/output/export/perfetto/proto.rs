//! The messages of Perfetto's trace. Stage: output.
//!
//! Source: `protos/perfetto/trace/` of github.com/google/perfetto; the names and numbers of the fields are taken from
//! it, and their meaning is documented there. Only the fields that are written here are declared; readers accept that
//! the others are missing. A file is a sequence of packets, each as field 1 of the message `Trace`.
#![allow(missing_docs)]

/// The field of a packet in the file.
pub const PACKET: u32 = 1;

/// A packet.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Packet {
    #[prost(message, optional, tag = "2")]
    pub process_tree: Option<ProcessTree>,
    #[prost(message, optional, tag = "6")]
    pub clock_snapshot: Option<ClockSnapshot>,
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub trusted_packet_sequence_id: u32,
    #[prost(message, optional, tag = "11")]
    pub track_event: Option<TrackEvent>,
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<Interned>,
    #[prost(uint32, tag = "13")]
    pub sequence_flags: u32,
    #[prost(message, optional, tag = "37")]
    pub profile_packet: Option<HeapProfile>,
    #[prost(message, optional, tag = "59")]
    pub trace_packet_defaults: Option<Defaults>,
    #[prost(message, optional, tag = "60")]
    pub track_descriptor: Option<TrackDescriptor>,
}

/// The same message with the fields of a sample only, because there are millions of these.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct SamplePacket {
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, tag = "10")]
    pub trusted_packet_sequence_id: u32,
    #[prost(message, required, tag = "66")]
    pub perf_sample: PerfSample,
}

/// A sample.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PerfSample {
    #[prost(uint32, optional, tag = "1")]
    pub cpu: Option<u32>,
    #[prost(uint32, tag = "2")]
    pub pid: u32,
    #[prost(uint32, tag = "3")]
    pub tid: u32,
    #[prost(uint64, tag = "4")]
    pub callstack_iid: u64,
    /// The mode of the sampled code: 1 is kernel, 2 is user.
    #[prost(int32, tag = "5")]
    pub cpu_mode: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Process {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(string, repeated, tag = "3")]
    pub cmdline: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Thread {
    #[prost(int32, tag = "1")]
    pub tid: i32,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(int32, tag = "3")]
    pub tgid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackDescriptor {
    #[prost(uint64, tag = "1")]
    pub uuid: u64,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    #[prost(uint64, tag = "5")]
    pub parent_uuid: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ThreadDescriptor {
    #[prost(int32, tag = "1")]
    pub pid: i32,
    #[prost(int32, tag = "2")]
    pub tid: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct TrackEvent {
    #[prost(message, repeated, tag = "4")]
    pub debug_annotations: Vec<Annotation>,
    /// 1 begins a slice, 2 ends it, 3 is an instant.
    #[prost(int32, tag = "9")]
    pub r#type: i32,
    #[prost(uint64, tag = "11")]
    pub track_uuid: u64,
    #[prost(string, tag = "23")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Annotation {
    #[prost(uint64, optional, tag = "3")]
    pub uint_value: Option<u64>,
    #[prost(string, optional, tag = "6")]
    pub string_value: Option<String>,
    #[prost(string, tag = "10")]
    pub name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Interned {
    #[prost(message, repeated, tag = "5")]
    pub function_names: Vec<Text>,
    #[prost(message, repeated, tag = "6")]
    pub frames: Vec<Frame>,
    #[prost(message, repeated, tag = "7")]
    pub callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "16")]
    pub build_ids: Vec<Text>,
    #[prost(message, repeated, tag = "17")]
    pub mapping_paths: Vec<Text>,
    #[prost(message, repeated, tag = "18")]
    pub source_paths: Vec<Text>,
    #[prost(message, repeated, tag = "19")]
    pub mappings: Vec<Mapping>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Text {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub str: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Mapping {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(uint64, tag = "2")]
    pub build_id: u64,
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub path_string_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Frame {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    #[prost(uint64, tag = "2")]
    pub function_name_id: u64,
    #[prost(uint64, tag = "3")]
    pub mapping_id: u64,
    #[prost(uint64, tag = "4")]
    pub rel_pc: u64,
    #[prost(uint64, optional, tag = "5")]
    pub source_path_iid: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    pub line_number: Option<u32>,
    #[prost(string, tag = "8")]
    pub kind_str: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Callstack {
    #[prost(uint64, tag = "1")]
    pub iid: u64,
    /// Outermost first.
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub frame_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Defaults {
    #[prost(message, optional, tag = "12")]
    pub perf_sample_defaults: Option<SampleDefaults>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SampleDefaults {
    #[prost(message, optional, tag = "1")]
    pub timebase: Option<Timebase>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Timebase {
    /// One sample for this many.
    #[prost(uint64, tag = "1")]
    pub period: u64,
    #[prost(uint64, tag = "2")]
    pub frequency: u64,
    /// 1 is the time of a CPU.
    #[prost(int32, tag = "4")]
    pub counter: i32,
    #[prost(string, tag = "10")]
    pub name: String,
}

/// Times of several clocks at one moment.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<ClockTime>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ClockTime {
    /// 4 is `CLOCK_MONOTONIC_COARSE`, 6 is `CLOCK_BOOTTIME`.
    #[prost(uint32, tag = "1")]
    pub clock_id: u32,
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

/// The message `ProfilePacket`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct HeapProfile {
    #[prost(message, repeated, tag = "5")]
    pub process_dumps: Vec<HeapDump>,
    /// Whether the next one belongs to the same heap.
    #[prost(bool, tag = "6")]
    pub continued: bool,
    #[prost(uint64, optional, tag = "7")]
    pub index: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HeapDump {
    #[prost(uint64, tag = "1")]
    pub pid: u64,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<HeapSample>,
    #[prost(uint64, tag = "9")]
    pub timestamp: u64,
    #[prost(string, tag = "11")]
    pub heap_name: String,
    /// The mean number of bytes from one sample to the next.
    #[prost(uint64, tag = "12")]
    pub sampling_interval_bytes: u64,
}

/// What was allocated and freed of one stack.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct HeapSample {
    #[prost(uint64, tag = "1")]
    pub callstack_id: u64,
    #[prost(uint64, tag = "2")]
    pub self_allocated: u64,
    #[prost(uint64, tag = "3")]
    pub self_freed: u64,
    #[prost(uint64, tag = "5")]
    pub alloc_count: u64,
    #[prost(uint64, tag = "6")]
    pub free_count: u64,
}
