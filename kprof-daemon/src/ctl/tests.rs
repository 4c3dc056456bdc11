//! Tests of the reading of the kernel's state: facts, counters, and counters from now on.

use super::*;

#[test]
fn facts_counters_and_repeated_keys_are_told_apart() {
    let text = "protocol 1\nstate running\nanchor a=1\nanchor b=2\ninclude idle user\nerror\ncpu.1.sent 100\n\
                cpu.1.lost-full 3\ncpu.1.lost-torn 4\ncpu.1.ring-words 100\ncpu.1.position-in 50\n\
                cpu.1.position-out 25\ncpu.12.sent 7\nmeta.position-in 9\n";
    let ctl = Ctl::parse(text);
    assert!(ctl.is_running());
    assert_eq!(ctl.fact(Fact::Include), Some("idle user"));
    assert_eq!(ctl.facts(Fact::Anchor).collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert_eq!(ctl.cpus().map(|(cpu, _)| cpu).collect::<Vec<_>>(), [1, 12]);
    assert_eq!(ctl.cpu(1).unwrap().lost(), 7);
    assert_eq!(ctl.meta(MetaCounter::PositionIn), Some(9));
    assert_eq!(ctl.fill(), 0.25);
    assert_eq!(ctl.cpu(1).unwrap().find(Counter::Delivered), None);
}

#[test]
fn an_updated_reading_is_the_same_as_a_fresh_one() {
    let texts = [
        "protocol 1\nstate running\nanchor a=1\ncpu.1.sent 1\ncpu.1.taken 1\ncpu.2.sent 3\nmeta.lost 0\n",
        "protocol 1\nstate stopped\nanchor a=1\nanchor b=2\ncpu.1.sent 5\ncpu.1.taken 4\ncpu.2.sent 9\nmeta.lost 1\n",
        "state stopped\ncpu.2.sent 9\n",
        "state stopped\ncpu.2.taken 9\ncpu.2.sent 9\ncpu.7.sent 9\nmeta.position-in 1\nmeta.lost 1\nerror x y\n",
        "",
    ];
    for before in texts {
        for after in texts {
            let mut ctl = Ctl::parse(before);
            ctl.update(after);
            assert_eq!(ctl, Ctl::parse(after), "{before:?} then {after:?}");
        }
    }
}

#[test]
fn a_line_that_is_not_understood_is_ignored_and_the_others_count() {
    let text = "cpu.1.sent many\ncpu.1.taken 7\ncpu.x.sent 1\n leading\ncpu.2 3\nmeta.lost -1\nmeta.position-in 2\n\
                cpu.3.sent 99999999999999999999\ncpu.1.user 1:\ncpu.1.idle \ncpu.1.recorded 18446744073709551615\n\
                state running\n";
    let ctl = Ctl::parse(text);
    assert_eq!(ctl.cpus().map(|(cpu, _)| cpu).collect::<Vec<_>>(), [1]);
    let cpu = ctl.cpu(1).unwrap();
    assert_eq!((cpu.find(Counter::Sent), cpu.find(Counter::Taken)), (None, Some(7)));
    let others = [Counter::User, Counter::Idle, Counter::Recorded].map(|counter| cpu.find(counter));
    assert_eq!(others, [None, None, Some(u64::MAX)]);
    assert_eq!((ctl.meta(MetaCounter::Lost), ctl.meta(MetaCounter::PositionIn)), (None, Some(2)));
    assert!(ctl.is_running());
}

#[test]
fn counters_can_count_from_now_and_levels_stay_what_they_are() {
    let mut ctl = Ctl::parse(
        "cpu.1.sent 100\ncpu.1.taken 97\ncpu.1.recorded 60\ncpu.1.lost-full 820\ncpu.1.pending 3\n\
         cpu.1.delivered 50\ncpu.1.in-ring 10\ncpu.1.position-in 600\ncpu.1.newer-counter 7\n",
    );
    ctl.count_from_now();
    let all = |ctl: &Ctl| ctl.cpu(1).unwrap().iter().map(|(_, value)| value).collect::<Vec<_>>();
    assert_eq!(all(&ctl), [3, 0, 0, 0, 3, 0, 10, 600, 0]);
    // The ten samples from before were delivered, and two new ones of five; the ring has a new counter before
    // others.
    ctl.update(
        "cpu.1.sent 107\ncpu.1.taken 107\ncpu.1.first 1\ncpu.1.recorded 65\ncpu.1.lost-full 825\ncpu.1.pending 0\n\
         cpu.1.delivered 62\ncpu.1.in-ring 3\ncpu.1.position-in 640\ncpu.1.newer-counter 9\ncpu.2.sent 4\n",
    );
    assert_eq!(all(&ctl), [10, 10, 1, 5, 5, 0, 2, 3, 640, 2]);
    assert_eq!(ctl.cpu(2).unwrap().get(Counter::Sent), 4, "a CPU that came later counts from its start");
}

#[test]
fn event_streams_have_counters_of_their_own() {
    let mut ctl = Ctl::parse("event.1.position-in 8\nevent.1.position-out 4\nevent.1.ring-words 16\n");
    let stream = |ctl: &Ctl, cpu| {
        let stream = Stream::Event(cpu);
        (ctl.position_in(stream), ctl.position_out(stream), ctl.ring_words(stream))
    };
    assert_eq!((stream(&ctl, 1), ctl.fill()), ((Some(8), Some(4), Some(16)), 0.25));
    ctl.update("event.1.position-in 16\nevent.1.position-out 4\nevent.1.ring-words 16\nevent.2.position-in 1\n");
    assert_eq!((stream(&ctl, 1), stream(&ctl, 2)), ((Some(16), Some(4), Some(16)), (Some(1), None, None)));
    assert_eq!((ctl.event_cpus().collect::<Vec<_>>(), stream(&ctl, 3)), (vec![1, 2], (None, None, None)));
}
