//! The stacks of the page: a tree of frames, and for each distinct stack its place in the tree. Stage: output, part of
//! the page.
//!
//! In: distinct stacks and symbols, of one profile or of two that are compared. Out: names of frames with their traits;
//! nodes, each with its parent and frame; stacks, each with its innermost node, the state of its samples and the
//! instruction that was sampled. Stacks of both profiles with the same frames are one stack.

use super::source;
use crate::output::annotate::code;
use crate::resolve::{Frame, Function, Resolver, marked};
use crate::stacks::{StackId, Stacks};
use crate::state::State;
use crate::symbols::users::plain;
use crate::symbols::{INLINED, Symbols};
use kprof_format::marker::Marker;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Traits of a frame, as bits. The script has the same numbers (`data.js`).
mod bit {
    /// The function was inlined.
    pub const INLINED: u32 = 1;
    /// The function is library code, not the kernel's own.
    pub const LIBRARY: u32 = 2;
    /// The frame is in the part of the stack that is user code.
    pub const USER: u32 = 4;
    /// The frame is an entry into the kernel by a system call.
    pub const SYSCALL: u32 = 8;
    /// The frame is an entry into the kernel by an interrupt or exception.
    pub const INTERRUPT: u32 = 16;
}

/// One distinct stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Stack {
    node: u32,
    state: State,
    /// The sampled instruction plus 1; 0 if it is not known.
    instruction: u32,
}

/// A function at an instruction: frame, file, line.
type Place = (u32, u32, u32);

/// All stacks.
#[derive(Debug, Default)]
pub struct Tree {
    /// For each frame its name, without the suffix for inlined frames, and its traits.
    frames: Vec<(String, u32)>,
    frame_numbers: HashMap<(String, u32), u32>,
    /// Frames whose code is that of several functions, with their number.
    merged: HashMap<u32, usize>,
    /// For each node its parent and its frame. Node 0 is the root, which has no frame.
    nodes: Vec<(u32, u32)>,
    node_numbers: HashMap<(u32, u32), u32>,
    stacks: Vec<Stack>,
    stack_numbers: HashMap<Stack, u32>,
    /// Sampled instructions: address, text, and the functions at the address, innermost first.
    instructions: Vec<(u64, String, Vec<Place>)>,
    files: Vec<String>,
    file_numbers: HashMap<String, u32>,
}

/// The number of a value in `list`. A new value is appended to the list.
fn number_of<T: Clone + Eq + std::hash::Hash>(numbers: &mut HashMap<T, u32>, list: &mut Vec<T>, value: &T) -> u32 {
    if let Some(number) = numbers.get(value) {
        return *number;
    }
    let number = list.len() as u32;
    list.push(value.clone());
    numbers.insert(value.clone(), number);
    number
}

/// The stacks of one profile, with what gives them their names.
pub struct Source<'a> {
    /// The distinct stacks.
    pub stacks: &'a Stacks,
    /// The names.
    pub symbols: &'a Symbols,
    /// Whether the innermost address of a stack is in the call that led to a point, and not a sampled instruction.
    pub is_of_point: bool,
}

/// The traits of a function at an address.
fn traits_of(function: &Function) -> u32 {
    let bit = |is_set, bit| if is_set { bit } else { 0 };
    bit(function.is_inlined(), bit::INLINED) | bit(function.is_library, bit::LIBRARY)
}

/// Calls `add` for each function of a stack, innermost first: its name and traits, and of how many functions its code
/// is.
fn functions(resolver: &mut Resolver<'_>, words: &[u64], user: bool, mut add: impl FnMut(&str, u32, usize)) {
    resolver.frames(words, user, |frame| match frame {
        Frame::At(_, place) => place.functions.iter().for_each(|function| {
            let merged = if function.is_inlined() { 1 } else { place.merged };
            add(&function.name, traits_of(function), merged);
        }),
        Frame::Marker(Marker::Syscall) => add(&frame.name(), bit::SYSCALL, 1),
        Frame::Marker(Marker::Interrupt(_) | Marker::Exception(_)) => add(&frame.name(), bit::INTERRUPT, 1),
        Frame::Marker(_) | Frame::Running | Frame::Nothing => add(&frame.name(), 0, 1),
    });
}

impl Tree {
    /// A tree with its root.
    pub fn new() -> Self {
        Self { nodes: vec![(0, 0)], ..Self::default() }
    }

    /// Adds the stacks with these numbers. Returns the number that each one has in the tree.
    pub fn add(&mut self, source: &Source<'_>, wanted: impl Iterator<Item = StackId>) -> HashMap<StackId, u32> {
        let mut resolver = Resolver::new(source.symbols);
        let (mut words, mut frames, mut added) = (Vec::new(), Vec::new(), HashMap::new());
        // The sampled instructions of this source; the same address may be other code in another one.
        let mut sampled = HashMap::new();
        for id in wanted {
            if added.contains_key(&id) {
                continue;
            }
            source.stacks.words(id, &mut words);
            let traits = source.stacks.traits(id);
            let mut in_kernel = 0;
            if traits.is_kernel() {
                functions(&mut resolver, &words, false, |_, _, _| in_kernel += 1);
            }
            frames.clear();
            functions(&mut resolver, &words, true, |name, traits, merged| {
                let user = if frames.len() < in_kernel { 0 } else { bit::USER };
                let frame = self.frame(name, traits | user);
                frames.push(frame);
                if merged > 1 {
                    self.merged.insert(frame, merged);
                }
            });
            let node = frames.iter().rev().fold(0, |parent, frame| self.child(parent, *frame));
            let instruction = self.instruction(&words, &mut resolver, &mut sampled, in_kernel == 0, source.is_of_point);
            let stack = Stack { node, state: State::of(traits), instruction };
            added.insert(id, number_of(&mut self.stack_numbers, &mut self.stacks, &stack));
        }
        added
    }

    fn child(&mut self, parent: u32, frame: u32) -> u32 {
        number_of(&mut self.node_numbers, &mut self.nodes, &(parent, frame))
    }

    fn frame(&mut self, name: &str, traits: u32) -> u32 {
        number_of(&mut self.frame_numbers, &mut self.frames, &(name.to_owned(), traits))
    }

    /// The number plus 1 of the sampled instruction, if the symbols give it a source line.
    fn instruction(
        &mut self,
        words: &[u64],
        resolver: &mut Resolver<'_>,
        known: &mut HashMap<u64, u32>,
        is_user: bool,
        is_of_point: bool,
    ) -> u32 {
        let mut sampled = None;
        resolver.frames(words, true, |frame| {
            let first = if let Frame::At(address, _) = frame { Some(address) } else { None };
            sampled.get_or_insert(first);
        });
        let Some(address) = sampled.flatten() else { return 0 };
        if let Some(number) = known.get(&address) {
            return *number;
        }
        let user = if is_user { bit::USER } else { 0 };
        let mut chain = Vec::new();
        for function in &resolver.at(address).functions {
            if let Some(place) = &function.location {
                let key = (function.name.clone(), traits_of(function) | user);
                let frame = number_of(&mut self.frame_numbers, &mut self.frames, &key);
                chain.push((frame, number_of(&mut self.file_numbers, &mut self.files, &place.file), place.line));
            }
        }
        let number = if chain.is_empty() { 0 } else { self.instructions.len() as u32 + 1 };
        if number > 0 {
            let (address, text) = match is_of_point {
                true => code::holding(resolver.symbols, address),
                false => (address, code::at(resolver.symbols, address)),
            };
            self.instructions.push((address, text, chain));
        }
        known.insert(address, number);
        number
    }

    /// How many stacks there are.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether there is no stack.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The name of each frame as other outputs show it.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let is_inlined = |traits| traits & bit::INLINED != 0;
        self.frames
            .iter()
            .map(move |(name, traits)| format!("{name}{}", if is_inlined(*traits) { INLINED } else { "" }))
    }

    /// The source text of the functions that have at least one in 200 of the samples. `counts` has those of each stack.
    pub fn source(&self, counts: &[u64]) -> Value {
        let sampled = || {
            let sampled = self.stacks.iter().zip(counts).filter(|(stack, count)| stack.instruction > 0 && **count > 0);
            sampled.map(|(stack, count)| (&self.instructions[stack.instruction as usize - 1].2, *count))
        };
        let mut of_functions = HashMap::<u32, u64>::new();
        for (chain, count) in sampled() {
            chain.iter().for_each(|(frame, ..)| *of_functions.entry(*frame).or_default() += count);
        }
        let least = counts.iter().sum::<u64>() / 200;
        let mut hot = BTreeMap::<u32, BTreeSet<u32>>::new();
        for (frame, file, line) in sampled().flat_map(|(chain, _)| chain) {
            if of_functions[frame] >= least {
                hot.entry(*file).or_default().insert(*line);
            }
        }
        source::text(&self.files, &hot)
    }

    /// Names, files and instructions, for the script.
    pub fn text(&self) -> Value {
        let merged = |frame| self.merged.get(&frame).copied().unwrap_or(1);
        let names = self.frames.iter().zip(0..).map(|((name, _), frame)| marked(name, merged(frame)));
        let instruction =
            |(address, text, chain): &(u64, String, Vec<Place>)| json!([format!("{:x}", plain(*address)), text, chain]);
        json!({
            "frames": names.collect::<Vec<_>>(),
            "traits": self.frames.iter().map(|(_, traits)| traits).collect::<Vec<_>>(),
            "files": self.files,
            "instructions": self.instructions.iter().map(instruction).collect::<Vec<_>>(),
        })
    }

    /// The columns: for each node except the root the distance from its parent and the frame; for each stack its node,
    /// state and instruction.
    pub fn columns(&self) -> [super::columns::Column; 5] {
        let nodes = || self.nodes.iter().zip(0u64..).skip(1);
        [
            nodes().map(|((parent, _), number)| number - u64::from(*parent)).collect(),
            nodes().map(|((_, frame), _)| u64::from(*frame)).collect(),
            self.stacks.iter().map(|stack| u64::from(stack.node)).collect(),
            self.stacks.iter().map(|stack| stack.state as u64).collect(),
            self.stacks.iter().map(|stack| u64::from(stack.instruction)).collect(),
        ]
    }
}
