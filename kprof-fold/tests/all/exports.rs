//! What the exports hold besides stacks and counts: tasks, kinds of code, marks, losses, time. The readers that others
//! wrote are in `cargo xtask test --only readers`.

use crate::sealed::{names, sealed};
use flate2::read::GzDecoder;
use kprof_fold::output::export::perfetto::proto::{Annotation, HeapSample, Packet, SamplePacket};
use kprof_fold::output::export::pprof::proto::Profile as PprofProfile;
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

const SYMS: &str = "ffffffff80001000 0000000000000100 T kmain\n\
    ffffffff80002000 0000000000000100 t timer\n\
    ffffffff80003000 0000000000000100 t idle\n";

/// Ten samples of CPU 1 in a ring that then lost 7, and two of CPU 2, one of the idle task. A TSC tick is a nanosecond.
pub fn profile() -> String {
    profile_with([0; 3])
}

/// The same with these ticks of CPU 1 in user code, in the idle task and coalesced.
pub fn profile_with([user, idle, coalesced]: [u32; 3]) -> String {
    let line = |task: &str, tsc: u32, stack: &str| format!("{task} 1 {tsc:x} {stack}\n");
    let kernel = "ffffffff80001010";
    let interrupt = "ffffffff80002010 fffffffffffff121 ffffffff80001020 fffffffffffff300 fffffffffffff500 1000";
    let samples: String = (0..10)
        .map(|at| line(["init", "work%201"][at as usize % 2], at * 1_000_000, if at < 7 { kernel } else { interrupt }))
        .collect();
    let of_idle_task = "t 2 f4240 ffffffff80003010 fffffffffffff002\nt 2 1e8480 ffffffff80001010\n";
    let batch = |cpu: u32, lost: u32, samples: &str| {
        let words: usize = samples.lines().map(|line| 4 + line.split(' ').count()).sum();
        let count = samples.lines().count();
        let [user, idle, coalesced] = if cpu == 1 { [user, idle, coalesced] } else { [0; 3] };
        let taken = count as u32 + lost + user + idle;
        let sent = taken + coalesced;
        format!(
            "# batch cpu={cpu} from=0 to={words} sent={sent} taken={taken} coalesced={coalesced} user={user} \
             idle={idle} lost-full={lost} recorded={count} delivered={count}\n\
             {samples}# end cpu={cpu} to={words} samples={count}\n"
        )
    };
    let marks = names("# mark tsc=1e8480 name=boot%20done\n# setting tsc=2dc6c0 value=depth%2032\n");
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# boot b\n# arch riscv64\n# hz 1000\n\
                # build-id 00112233445566778899aabbccddeeff00112233\n";
    sealed(&format!("{head}{marks}{}{}", batch(1, 7, &samples), batch(2, 0, of_idle_task)))
}

pub fn export(name: &str, options: &[&str]) -> Vec<u8> {
    export_of(name, &profile(), options)
}

pub fn export_of(name: &str, profile: &str, options: &[&str]) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = |end: &str, text: &str| {
        let path = folder.join(format!("exports-{name}.{end}"));
        fs::write(&path, text).expect("the test folder is writable");
        path.display().to_string()
    };
    let words = [file("profile", profile), file("syms", SYMS)];
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["export", "-q"]).args(options).args(words).output().expect("kprof-fold runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

fn json(name: &str, options: &[&str]) -> Value {
    serde_json::from_slice(&export(name, options)).expect("is JSON")
}

pub fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().expect("is a list").iter().map(|one| one.as_f64().expect("is a number")).collect()
}

#[test]
fn speedscope_has_a_period_for_each_sample_and_losses_where_they_were() {
    let all = json("speedscope", &["--to", "speedscope"]);
    let name = |id: &Value| all["shared"]["frames"][id.as_u64().expect("is a number") as usize]["name"].clone();
    let profile = &all["profiles"][0];
    assert_eq!((&profile["unit"], &profile["name"]), (&Value::from("microseconds"), &Value::from("CPU 1")));
    let weights = numbers(&profile["weights"]);
    let mut by_leaf: BTreeMap<String, f64> = BTreeMap::new();
    for (stack, weight) in profile["samples"].as_array().expect("is a list").iter().zip(&weights) {
        let leaf = stack.as_array().expect("is a list").last().map_or("-".into(), name);
        *by_leaf.entry(leaf.as_str().expect("is text").to_owned()).or_default() += weight;
    }
    let expected = [("[lost]", 7000.0), ("kmain", 7000.0), ("timer", 3000.0)].map(|(name, us)| (name.to_owned(), us));
    assert_eq!(by_leaf, BTreeMap::from(expected));
    assert_eq!(
        profile["endValue"].as_f64().unwrap() - profile["startValue"].as_f64().unwrap(),
        weights.iter().sum::<f64>()
    );
    // CPU 2 begins when its first sample was taken.
    assert_eq!(all["profiles"][1]["startValue"], 1000);
}

#[test]
fn the_firefox_profiler_has_tasks_kinds_of_code_marks_losses_and_the_build() {
    let all = json("firefox", &["--to", "firefox", "--user"]);
    let shared = &all["shared"];
    let column = |table: &str, name: &str, at: usize| shared[table][name][at].clone();
    let index = |value: Value| value.as_u64().expect("is a number") as usize;
    let text = |at: Value| shared["stringArray"][index(at)].as_str().expect("is text").to_owned();
    // Function and category of each frame, innermost first.
    let stack = |node: &Value| {
        let (mut frames, mut node) = (Vec::new(), node.clone());
        while !node.is_null() {
            let frame = index(column("stackTable", "frame", index(node.clone())));
            let category = &all["meta"]["categories"][index(column("frameTable", "category", frame))]["name"];
            let function = index(column("frameTable", "func", frame));
            frames.push(format!("{} ({})", text(column("funcTable", "name", function)), category.as_str().unwrap()));
            node = column("stackTable", "prefix", index(node));
        }
        frames
    };
    let threads = all["threads"].as_array().expect("is a list");
    let found: Vec<String> = threads
        .iter()
        .map(|thread| {
            let of = |name: &str| thread[name].as_str().expect("is text").to_owned();
            let samples = &thread["samples"];
            let weight =
                if samples["weight"].is_null() { samples["length"].clone() } else { samples["weight"][0].clone() };
            format!("{}/{} {weight}", of("processName"), of("name"))
        })
        .collect();
    let expected = ["kernel/marks 0", "CPU 1/init 5", "CPU 1/work 1 5", "CPU 1/[lost] 7", "CPU 2/t 2"];
    assert_eq!(found, expected);
    assert_eq!(all["libs"][0]["arch"], "riscv64");
    let markers = &threads[0]["markers"];
    assert_eq!((&markers["data"][0]["name"], &markers["startTime"][0]), (&"boot done".into(), &2.0.into()));
    assert_eq!((text(markers["name"][0].clone()), text(markers["name"][1].clone())), ("mark".into(), "setting".into()));
    let init = &threads[1]["samples"];
    assert_eq!(numbers(&init["timeDeltas"]), [0.0, 2.0, 2.0, 2.0, 2.0]);
    assert_eq!(stack(&init["stack"][0]), ["kmain (Kernel)"]);
    let interrupted = [
        "timer (Interrupt or exception)",
        "[interrupt 33] (Interrupt or exception)",
        "kmain (Kernel)",
        "[syscall] (Kernel)",
        "[unknown] (User)",
    ];
    assert_eq!(stack(&init["stack"][4]), interrupted);
    assert_eq!(numbers(&init["threadCPUDelta"]), [1e6; 5]);
    assert_eq!(stack(&threads[3]["samples"]["stack"][0]), ["[lost] (Lost)"]);
    let idle = &threads[4]["samples"];
    assert_eq!(
        (stack(&idle["stack"][0]), stack(&idle["stack"][1])),
        (vec!["idle (Idle)".into()], vec!["kmain (Kernel)".into()])
    );
    assert_eq!(numbers(&idle["threadCPUDelta"]), [0.0, 1e6]);
    let lib = &all["libs"][0];
    assert_eq!(
        (&lib["codeId"], &lib["breakpadId"]),
        (&"00112233445566778899aabbccddeeff00112233".into(), &"33221100554477668899AABBCCDDEEFF0".into())
    );
    assert_eq!(all["meta"]["interval"], 1.0);
}

/// The samples of a trace, and its other packets.
pub fn packets(bytes: &[u8]) -> (Vec<SamplePacket>, Vec<Packet>) {
    let (mut rest, mut samples, mut packets) = (bytes, Vec::new(), Vec::new());
    while !rest.is_empty() {
        assert_eq!(prost::encoding::decode_varint(&mut rest).expect("is a field"), 10);
        let length = prost::encoding::decode_varint(&mut rest).expect("is a length") as usize;
        let (packet, after) = rest.split_at(length);
        rest = after;
        match SamplePacket::decode(packet).expect("is a packet") {
            sample if sample.perf_sample.pid > 0 => samples.push(sample),
            _ => packets.push(Packet::decode(packet).expect("is a packet")),
        }
    }
    (samples, packets)
}

#[test]
fn perfetto_has_a_packet_for_each_sample_and_says_everything_else_once() {
    let bytes = export("perfetto", &["--to", "perfetto"]);
    let (samples, packets) = packets(&bytes);
    let mut frames = BTreeMap::new();
    let (mut functions, mut stacks, mut threads) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    for packet in &packets {
        let data = packet.interned_data.clone().unwrap_or_default();
        functions.extend(data.function_names.into_iter().map(|text| (text.iid, String::from_utf8(text.str).unwrap())));
        frames.extend(data.frames.into_iter().map(|frame| (frame.iid, frame)));
        stacks.extend(data.callstacks.into_iter().map(|stack| (stack.iid, stack.frame_ids)));
        let tree = packet.process_tree.clone().unwrap_or_default();
        threads.extend(tree.threads.into_iter().map(|thread| (thread.tid as u32, thread.name)));
    }
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for sample in &samples {
        let one = sample.perf_sample;
        let frames = stacks[&one.callstack_iid].iter().map(|id| &functions[&frames[id].function_name_id][..]);
        let stack = frames.collect::<Vec<_>>().join(";");
        *counts.entry(format!("{} {} {stack}", one.cpu.unwrap(), threads[&one.tid])).or_default() += 1;
    }
    let expected = [
        ("1 init [syscall];kmain;[interrupt 33];timer", 1),
        ("1 init kmain", 4),
        ("1 work 1 [syscall];kmain;[interrupt 33];timer", 2),
        ("1 work 1 kmain", 3),
        ("2 t idle", 1),
        ("2 t kmain", 1),
    ];
    assert_eq!(counts, expected.map(|(key, count)| (key.to_owned(), count)).into());
    let times: Vec<u64> =
        samples.iter().filter(|one| one.perf_sample.cpu == Some(1)).filter_map(|one| one.timestamp).collect();
    assert_eq!(times, (0..10).map(|at| at * 1_000_000).collect::<Vec<u64>>());
    let events: Vec<_> = packets.iter().filter_map(|packet| packet.track_event.clone()).collect();
    let named = |name: &str| events.iter().find(|event| event.name == name).expect("is there");
    assert_eq!((named("boot done").r#type, named("depth 32").r#type, named("[lost]").r#type), (3, 3, 1));
    assert_eq!(named("[lost]").debug_annotations[0].uint_value, Some(7));
}

/// Decodes a gzipped profile.
fn pprof(bytes: &[u8]) -> PprofProfile {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).expect("is gzipped");
    PprofProfile::decode(&plain[..]).expect("is a profile")
}

/// The types of the values, as `NAME/UNIT`, with the default one, and the values by the name of the innermost frame.
fn values(profile: &PprofProfile) -> (Vec<String>, &str, BTreeMap<&str, Vec<i64>>) {
    let text = |at: i64| &profile.string_table[at as usize][..];
    let types = profile.sample_type.iter().map(|one| format!("{}/{}", text(one.r#type), text(one.unit))).collect();
    let name = |id: u64| {
        let location = profile.location.iter().find(|one| one.id == id).expect("is there");
        text(profile.function.iter().find(|one| one.id == location.line[0].function_id).expect("is there").name)
    };
    let values = profile.sample.iter().map(|sample| (name(sample.location_id[0]), sample.value.clone())).collect();
    (types, text(profile.default_sample_type), values)
}

/// What an export of the events of a point writes, from golden inputs.
fn events(input: &str, viewer: &str, event: &str) -> Vec<u8> {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/inputs");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    fold.args(["export", "-q", "--to", viewer, "--event", event]).arg(golden.join(input));
    let done = fold.arg(golden.join("five-functions.syms")).output().expect("kprof-fold runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    done.stdout
}

#[test]
fn speedscope_has_a_profile_for_each_value_of_events_and_its_weights_add_up_to_the_exact_total() {
    let all: Value = serde_json::from_slice(&events("events.profile", "speedscope", "null.write")).expect("is JSON");
    let stacks = |profile: &Value| {
        let name = |id: &Value| all["shared"]["frames"][id.as_u64().expect("is a number") as usize]["name"].clone();
        let stack = |stack: &Value| {
            let frames = stack.as_array().expect("is a list").iter().map(name);
            frames.map(|frame| frame.as_str().expect("is text").to_owned()).collect::<Vec<_>>().join(";")
        };
        let samples = profile["samples"].as_array().expect("is a list").iter().map(stack);
        samples.zip(numbers(&profile["weights"])).collect::<BTreeMap<_, _>>()
    };
    let expected = |values: [f64; 4]| {
        let names = ["[syscall];kmain;mm::map", "kmain;mm::unmap", "[lost]", "[not recorded]"];
        names.map(str::to_owned).into_iter().zip(values).collect::<BTreeMap<_, _>>()
    };
    let [hits, bytes] = [&all["profiles"][0], &all["profiles"][1]];
    assert_eq!((&hits["unit"], &bytes["unit"]), (&Value::from("none"), &Value::from("bytes")));
    assert_eq!((&bytes["name"], &all["activeProfileIndex"]), (&Value::from("null.write"), &Value::from(1)));
    assert_eq!(stacks(hits), expected([2.0, 1.0, 1.0, 1.0]));
    assert_eq!(stacks(bytes), expected([600.0, 300.0, 300.0, 100.0]));
    assert_eq!((&hits["endValue"], &bytes["endValue"]), (&Value::from(5), &Value::from(1300)));
}

#[test]
fn the_firefox_profiler_has_each_hit_at_its_time_and_the_weights_add_up_to_the_exact_total() {
    let export = |input: &str, event: &str| -> Value {
        serde_json::from_slice(&events(input, "firefox", event)).expect("is JSON")
    };
    let rows = |all: &Value| {
        let row = |thread: &Value| {
            let (samples, text) = (&thread["samples"], |name: &str| thread[name].as_str().expect("is text").to_owned());
            let kind = samples["weightType"].as_str().expect("is text").to_owned();
            assert_eq!(samples["stack"].as_array().map(Vec::len), Some(numbers(&samples["weight"]).len()));
            let name = format!("{}/{}", text("processName"), text("name"));
            (name, kind, numbers(&samples["weight"]), numbers(&samples["timeDeltas"]))
        };
        all["threads"].as_array().expect("is a list").iter().map(row).collect::<Vec<_>>()
    };
    let row = |name: &str, kind: &str, weights: &[f64], times: &[f64]| {
        (name.to_owned(), kind.to_owned(), weights.to_vec(), times.to_vec())
    };
    let bytes = export("events.profile", "null.write");
    let expected = [
        row("CPU 1/a b", "bytes", &[300.0], &[2e-6]),
        row("CPU 1/dd", "bytes", &[300.0, 300.0], &[0.0, 1e-6]),
        row("CPU 1/[lost]", "bytes", &[300.0], &[0.0]),
        row("CPU 1/[not recorded]", "bytes", &[100.0], &[0.0]),
    ];
    assert_eq!(rows(&bytes), expected);
    // Times are milliseconds. Of CPU 2 one of five hits was recorded: they are scaled to what the folded stacks have.
    let times = export("events-after-a-sample.profile", "lock.wait");
    let expected = [
        row("CPU 1/a b", "tracing-ms", &[1.2], &[1.3]),
        row("CPU 1/dd", "tracing-ms", &[0.3], &[0.3]),
        row("CPU 2/dd", "tracing-ms", &[0.018769, 0.032846], &[0.3, 0.002]),
        row("kernel/[lost]", "tracing-ms", &[0.005], &[0.0]),
        row("CPU 1/[not recorded]", "tracing-ms", &[0.2], &[0.0]),
        row("CPU 2/[lost]", "tracing-ms", &[0.009385], &[0.0]),
    ];
    assert_eq!(rows(&times), expected);
    // No thread has the time of a CPU: hits are not periods of it.
    assert!(times["threads"].as_array().unwrap().iter().all(|thread| thread["samples"]["threadCPUDelta"].is_null()));
    let leaf = |node: &Value| {
        let column = |table: &str, name: &str, at: &Value| {
            times["shared"][table][name][at.as_u64().expect("is a number") as usize].clone()
        };
        let frame = column("stackTable", "frame", node);
        let name = column("funcTable", "name", &column("frameTable", "func", &frame));
        let category = column("frameTable", "category", &frame).as_u64().unwrap() as usize;
        let category = times["meta"]["categories"][category]["name"].as_str().unwrap().to_owned();
        (times["shared"]["stringArray"][name.as_u64().unwrap() as usize].as_str().unwrap().to_owned(), category)
    };
    let leaves: Vec<_> = [0, 1, 3, 4].map(|at| leaf(&times["threads"][at]["samples"]["stack"][0])).into();
    let expected = [("mm::unmap", "Kernel"), ("mm::map", "Kernel"), ("[lost]", "Lost"), ("[not recorded]", "Other")];
    assert_eq!(leaves, expected.map(|(name, category)| (name.to_owned(), category.to_owned())));
}

/// What happens on the tracks of events: time, kind, the name of the track, and for a beginning the arguments.
pub fn on_tracks(packets: &[Packet]) -> Vec<(u64, i32, String, String)> {
    let names: BTreeMap<u64, String> = packets
        .iter()
        .filter_map(|packet| packet.track_descriptor.clone())
        .map(|track| (track.uuid, format!("{}{}", ["", "task/"][usize::from(track.parent_uuid > 0)], track.name)))
        .collect();
    let one = |packet: &Packet| {
        let event = packet.track_event.clone()?;
        let argument = |one: &Annotation| {
            let value = one.uint_value.map(|value| value.to_string()).or(one.string_value.clone());
            format!("{}={}", one.name, value.unwrap_or_default())
        };
        let arguments: Vec<String> = event.debug_annotations.iter().map(argument).collect();
        Some((packet.timestamp?, event.r#type, names[&event.track_uuid].clone(), arguments.join(" ")))
    };
    packets.iter().filter_map(one).filter(|(.., track, _)| track != "time 0").collect()
}

#[test]
fn perfetto_has_a_slice_as_long_as_the_weight_of_each_hit_that_ends_at_its_time() {
    let (samples, packets) = packets(&events("events-after-a-sample.profile", "perfetto", "lock.wait"));
    let wait = "task/lock.wait (ns)";
    let expected = [
        (0, 1, wait, "weight=300000 CPU=1 argument 1=7 argument 2=255"),
        (300_000, 2, wait, ""),
        // The tasks of the two CPUs have the same name, so it is one thread, and these overlap.
        (296_000, 1, wait, "weight=4000 stands for=18769 CPU=2 argument 1=1 argument 2=18446620928407244800"),
        (300_000, 2, wait, ""),
        (295_000, 1, wait, "weight=7000 stands for=32846 CPU=2"),
        (302_000, 2, wait, ""),
        (100_000, 1, wait, "weight=1200000 CPU=1"),
        (1_300_000, 2, wait, ""),
        (0, 1, "CPU not known [lost]", "weight=5000"),
        (1_300_000, 2, "CPU not known [lost]", ""),
        (0, 1, "CPU 1 [not recorded]", "weight=200000"),
        (1_300_000, 2, "CPU 1 [not recorded]", ""),
        (0, 1, "CPU 2 [lost]", "weight=9385"),
        (1_300_000, 2, "CPU 2 [lost]", ""),
    ];
    let expected = expected.map(|(at, kind, track, words)| (at, kind, track.to_owned(), words.to_owned()));
    assert_eq!(on_tracks(&packets), expected);
    // Slices that overlap are on tracks of their own.
    let lanes = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref()).filter(|one| one.parent_uuid > 0);
    assert_eq!(lanes.count(), 4);
    assert_eq!(
        samples.iter().filter_map(|one| one.timestamp).collect::<Vec<_>>(),
        [300_000, 300_000, 302_000, 1_300_000]
    );
}

#[test]
fn perfetto_has_an_instant_for_a_weight_that_is_no_time_and_names_the_arguments_of_requests() {
    let (_, written) = packets(&events("events.profile", "perfetto", "null.write"));
    let instants: Vec<_> = on_tracks(&written).into_iter().filter(|(_, kind, ..)| *kind == 3).collect();
    let words: Vec<&str> = instants.iter().map(|(.., words)| &words[..]).collect();
    assert_eq!(words, ["weight=300 CPU=1", "weight=300 CPU=1 argument 1=7 argument 2=255", "weight=300 CPU=1"]);
    let (_, requests) = packets(&events("block.profile", "perfetto", "block.read"));
    assert_eq!(on_tracks(&requests)[0].3, "weight=100 CPU=1 device=0 sector=2048 bytes=4096");
}

#[test]
fn the_firefox_profiler_has_a_counter_of_the_weights_of_each_cpu_in_the_order_of_time() {
    let counters = |input: &str, event: &str| {
        let all: Value = serde_json::from_slice(&events(input, "firefox", event)).expect("is JSON");
        let one = |counter: &Value| {
            let (samples, text) = (&counter["samples"], |name: &str| counter[name].as_str().unwrap().to_owned());
            let main = &all["threads"][counter["mainThreadIndex"].as_u64().expect("is a number") as usize];
            assert_eq!((main["pid"].clone(), text("name")), (text("pid").into(), event.to_owned()));
            assert_eq!(samples["length"], numbers(&samples["number"]).len());
            (text("pid"), text("category"), numbers(&samples["time"]), numbers(&samples["count"]))
        };
        all["counters"].as_array().expect("is a list").iter().map(one).collect::<Vec<_>>()
    };
    let row = |cpu: &str, category: &str, times: &[f64], weights: &[f64]| {
        (cpu.to_owned(), category.to_owned(), times.to_vec(), weights.to_vec())
    };
    let bytes = row("CPU 1", "Bandwidth", &[0.0, 1e-6, 2e-6], &[300.0, 300.0, 300.0]);
    assert_eq!(counters("events.profile", "null.write"), [bytes]);
    let times = [
        row("CPU 1", "kprof", &[0.3, 1.3], &[300_000.0, 1_200_000.0]),
        row("CPU 2", "kprof", &[0.3, 0.302], &[18_769.0, 32_846.0]),
    ];
    assert_eq!(counters("events-after-a-sample.profile", "lock.wait"), times);
    let heap = counters("heap.profile", "heap.live");
    assert_eq!(heap, [row("kernel", "Memory", &[0.004096, 1999.995904], &[106_651.0, 70_139.0])]);
}

#[test]
fn the_heap_is_bytes_at_their_times_in_the_firefox_profiler_and_a_heap_profile_in_perfetto() {
    let all: Value = serde_json::from_slice(&events("heap.profile", "firefox", "heap.live")).expect("is JSON");
    let (threads, samples) = (all["threads"].as_array().expect("is a list"), &all["threads"][0]["samples"]);
    assert_eq!((threads.len(), &threads[0]["name"], &samples["weightType"]), (1, &"heap.live".into(), &"bytes".into()));
    // The allocation that was freed is not there; the others are at the times at which they were made.
    assert_eq!(numbers(&samples["weight"]), [106_651.0, 70_139.0]);
    assert_eq!(numbers(&samples["timeDeltas"]), [0.004096, 1999.991808]);
    let (samples, packets) = packets(&events("heap.profile", "perfetto", "heap.live"));
    let heaps: Vec<_> = packets.iter().filter_map(|packet| packet.profile_packet.clone()).collect();
    let dump = &heaps[0].process_dumps[0];
    assert_eq!((samples.len(), heaps.len(), dump.sampling_interval_bytes), (0, 1, 65_536));
    let one = |one: &HeapSample| [one.self_allocated, one.self_freed, one.alloc_count, one.free_count];
    let rows: Vec<_> = dump.samples.iter().map(one).collect();
    assert_eq!(rows, [[106_651, 0, 2, 0], [140_278, 70_139, 16, 8]]);
    assert!(packets.iter().any(|packet| packet.clock_snapshot.is_some()));
}

#[test]
fn pprof_of_the_heap_has_the_four_types_of_go_and_that_of_a_point_has_hits_and_weight() {
    let export = |input: &str, event: &str| pprof(&events(input, "pprof", event));
    let heap = export("heap.profile", "heap.live");
    let (types, default, rows) = values(&heap);
    assert_eq!(types, ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"]);
    assert_eq!((default, heap.period), ("inuse_space", 65_536));
    // An allocation of 9000 bytes at one sample per 64 KiB stands for 7.79, and one of 70000 bytes for 1.52.
    assert_eq!(
        rows,
        BTreeMap::from([("mm::map", vec![16, 140_278, 8, 70_139]), ("mm::unmap", vec![2, 106_651, 2, 106_651])])
    );
    assert_eq!(values(&export("heap.profile", "heap.alloc")).1, "alloc_space");
    let write = export("events.profile", "null.write");
    let (types, default, rows) = values(&write);
    assert_eq!((types.join(" "), default), ("hits/count null.write/bytes".to_owned(), "null.write"));
    let expected = [("mm::map", [2, 600]), ("mm::unmap", [1, 300]), ("[lost]", [1, 300]), ("[not recorded]", [1, 100])];
    assert_eq!(rows, expected.map(|(name, values)| (name, values.to_vec())).into());
}

#[test]
fn pprof_has_lost_samples_as_a_function() {
    let profile = pprof(&export("pprof", &["--to", "pprof"]));
    let name = |id: u64| {
        let location = profile.location.iter().find(|one| one.id == id).expect("is there");
        let function = profile.function.iter().find(|one| one.id == location.line[0].function_id).expect("is there");
        &profile.string_table[function.name as usize]
    };
    let mut by_leaf: BTreeMap<&String, i64> = BTreeMap::new();
    for sample in &profile.sample {
        *by_leaf.entry(name(sample.location_id[0])).or_default() += sample.value[0];
    }
    let expected =
        [("[lost]", 7), ("idle", 1), ("kmain", 8), ("timer", 3)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(by_leaf, expected.iter().map(|(name, count)| (name, *count)).collect());
}
