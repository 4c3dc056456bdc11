//! Times in the exports: one time 0 in all of them, marks before it, and ticks that have no sample.

use crate::exports::{export, export_of, numbers, on_tracks, packets, profile, profile_with};
use crate::sealed::sealed;
use serde_json::Value;

#[test]
fn ticks_in_user_code_and_in_the_idle_task_have_tracks_and_threads_of_their_own_in_the_chosen_time() {
    let profile = profile_with([40, 90, 20]);
    let export = |viewer: &str, options: &[&str]| {
        export_of(&format!("ticks-{viewer}"), &profile, &[&["--to", viewer], options].concat())
    };
    let slices = |options: &[&str]| {
        let (_, packets) = packets(&export("perfetto", options));
        let slices = on_tracks(&packets).into_iter().filter(|(_, kind, ..)| *kind < 3);
        slices.map(|(at, _, track, words)| format!("{track} {at} {words}")).collect::<Vec<_>>()
    };
    let expected = [
        "CPU 1 [lost] 0 samples=7",
        "CPU 1 [lost] 9000000 ",
        "CPU 1 [user] 0 ticks=40",
        "CPU 1 [user] 9000000 ",
        "CPU 1 [idle] 0 ticks=90",
        "CPU 1 [idle] 9000000 ",
        "CPU 1 [coalesced] 0 ticks=20",
        "CPU 1 [coalesced] 9000000 ",
    ];
    assert_eq!(slices(&[]), expected);
    assert_eq!(slices(&["--cpu", "2"]), [""; 0]);
    // Half of the time has half of the ticks, and no slice goes beyond it.
    let half = slices(&["--between", "0", "0.0045"]);
    assert_eq!(half[2..4], ["CPU 1 [user] 0 ticks=20", "CPU 1 [user] 4499999 "], "{half:?}");
    assert_eq!(slices(&["--task", "init"])[2], "CPU 1 [user, of any task] 0 ticks=40");

    let all: Value = serde_json::from_slice(&export("firefox", &[])).expect("is JSON");
    let index = |table: &str, column: &str, at: &Value| {
        all["shared"][table][column][at.as_u64().expect("is a number") as usize].clone()
    };
    let thread = |thread: &Value| {
        let frame = index("stackTable", "frame", &thread["samples"]["stack"][0]);
        let category = index("frameTable", "category", &frame).as_u64().expect("is a number") as usize;
        let category = &all["meta"]["categories"][category]["name"];
        format!("{} {} {category}", thread["name"], thread["samples"]["weight"])
    };
    let threads = all["threads"].as_array().expect("is a list").iter();
    let beside: Vec<String> = threads.filter(|one| one["samples"]["weight"].is_array()).map(thread).collect();
    let expected = [
        "\"[lost]\" [7] \"Lost\"",
        "\"[user]\" [40] \"User\"",
        "\"[idle]\" [90] \"Idle\"",
        "\"[coalesced]\" [20] \"Other\"",
    ];
    assert_eq!(beside, expected);
    // Elsewhere shares are of the samples, as in a flame graph.
    for viewer in ["speedscope", "pprof"] {
        assert_eq!(
            export(viewer, &[]).len(),
            crate::exports::export(&format!("ticks-{viewer}"), &["--to", viewer]).len()
        );
    }
}

#[test]
fn a_moment_has_the_same_time_in_every_output_whatever_is_chosen() {
    // The file begins with a sample of CPU 1, CPU 2 a millisecond later.
    let of_cpu_2 = |viewer: &str| export(&format!("zero-{viewer}"), &["--to", viewer, "--cpu", "2"]);
    let (samples, packets) = packets(&of_cpu_2("perfetto"));
    assert_eq!(samples.iter().filter_map(|one| one.timestamp).collect::<Vec<_>>(), [1_000_000, 2_000_000]);
    let said = "time 0 is that of the first sample or hit of the file: TSC 0, 0.000000 s of its clock";
    assert!(packets.iter().any(|packet| packet.track_event.as_ref().is_some_and(|event| event.name == said)));
    let firefox: Value = serde_json::from_slice(&of_cpu_2("firefox")).expect("is JSON");
    assert_eq!(numbers(&firefox["threads"][1]["samples"]["timeDeltas"]), [1.0, 1.0]);
    assert_eq!(firefox["meta"]["extra"][0]["entries"][0]["value"], said);
    let speedscope: Value = serde_json::from_slice(&of_cpu_2("speedscope")).expect("is JSON");
    assert_eq!(speedscope["profiles"][0]["startValue"], 1000);
    // The time of --between is the same.
    let (samples, _) =
        crate::exports::packets(&export("zero", &["--to", "perfetto", "--cpu", "2", "--between", "0.0019", "1"]));
    assert_eq!(samples.iter().filter_map(|one| one.timestamp).collect::<Vec<_>>(), [2_000_000]);
}

#[test]
fn a_mark_before_the_first_sample_says_how_much_earlier_it_was() {
    let later = profile().replace("name=boot%20done", "name=boot%20done\n# mark tsc=0 name=begin");
    let text = later.lines().filter(|line| !line.starts_with("# end cpu=meta"));
    let text: String = text.map(|line| line.to_owned() + "\n").collect();
    // Every sample is one second later, and the mark `boot done` a second before them.
    let shifted = text.replace("# batch cpu=1", "# end cpu=meta to=10\n# batch cpu=1");
    let sample = |line: &str| {
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if let (false, Some(tsc)) = (line.starts_with('#'), words.get_mut(2)) {
            *tsc = format!("{:x}", u64::from_str_radix(tsc, 16).expect("is hex") + 1_000_000_000);
        }
        words.join(" ").replace(" crc=", " was=") + "\n"
    };
    let shifted: String = shifted.lines().map(sample).collect();
    let (_, packets) = packets(&export_of("early", &sealed(&shifted), &["--to", "perfetto"]));
    let marks: Vec<_> = packets.iter().filter_map(|packet| packet.track_event.as_ref()).map(|one| &one.name).collect();
    assert!(marks.iter().any(|name| *name == "begin (1.000000 s earlier)"), "{marks:?}");
}
