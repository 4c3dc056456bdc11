//! Tests of the table of distinct stacks.

use super::*;

#[test]
fn each_distinct_stack_has_its_own_number_and_keeps_its_words() {
    let mut stacks = Stacks::new(Encoding::Hex);
    let texts: Vec<String> = (0..5000u64).map(|n| format!("ffffffff80{n:06x} {:x}", n * 7)).collect();
    for (round, text) in texts.iter().chain(&texts).enumerate() {
        let hash = hash(text.as_bytes());
        match stacks.find(text.as_bytes(), hash) {
            Some((id, _)) => assert_eq!(id as usize, round - texts.len()),
            None => {
                let number = (round % texts.len()) as u64;
                let words = [0xffff_ffff_8000_0000 + number, number * 7];
                assert_eq!(stacks.insert_parsed(text.as_bytes(), hash, &words).0 as usize, round);
            }
        }
    }
    let mut words = Vec::new();
    stacks.words(3, &mut words);
    assert_eq!(words, [0xffff_ffff_8000_0003, 21]);
    assert_eq!(stacks.len(), 5000);
}

#[test]
fn every_byte_and_the_length_change_the_hash() {
    for len in 0..100 {
        let base = vec![b'0'; len];
        let before = hash(&base);
        for at in 0..len {
            let mut changed = base.clone();
            changed[at] = b'1';
            assert_ne!(hash(&changed), before, "length {len}, byte {at}");
        }
        let longer = [&base[..], &b"0"[..]].concat();
        assert_ne!(hash(&longer), before, "length {len}");
    }
}

#[test]
fn traits_follow_first_address_and_markers() {
    let facts = |bits| Marker::Facts(Facts(bits)).encode();
    assert!(!Traits::of(&[0x1000]).is_kernel());
    assert!(Traits::of(&[1 << 63]).is_kernel());
    let idle = Traits::of(&[1 << 63, facts(Facts::IDLE | Facts::INTERRUPTS_OFF)]);
    assert!(idle.is_idle() && idle.interrupts_off());
    let serving = Traits::of(&[1 << 63, facts(Facts::IDLE), Marker::Interrupt(33).encode()]);
    assert!(!serving.is_idle() && serving.in_interrupt());
    let user = Marker::User.encode();
    let forged = Traits::of(&[1 << 63, user, Marker::Interrupt(33).encode(), facts(Facts::INTERRUPTS_OFF)]);
    assert!(!forged.in_interrupt() && !forged.interrupts_off());
}
