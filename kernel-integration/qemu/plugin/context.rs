//! The tree of calling contexts with exact counts. Stage: capture.
//!
//! In: functions by number, as they are called. Out: nodes, each with its caller's node, its function, the instructions
//! that were executed in it and how often it was entered. Nodes are never removed. A stack that is deeper than
//! [`MAX_DEPTH`] stays at that depth: its innermost function takes the place of the one before.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// The node that all stacks begin at; it has no function.
pub const ROOT: u32 = 0;
/// The deepest stack.
pub const MAX_DEPTH: u32 = 512;
/// The function of [`ROOT`].
const NO_FUNCTION: u32 = u32::MAX;

/// A calling context.
#[derive(Clone, Debug)]
pub struct Node {
    pub parent: u32,
    pub function: u32,
    pub instructions: u64,
    pub calls: u64,
    depth: u32,
}

/// A hash of one word: the keys are not chosen by anybody.
#[derive(Default)]
pub struct WordHasher(u64);

impl Hasher for WordHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
    }
}

/// A map by one word.
pub type WordMap<T> = HashMap<u64, T, BuildHasherDefault<WordHasher>>;

/// All contexts.
pub struct Tree {
    pub nodes: Vec<Node>,
    children: WordMap<u32>,
    /// How often a function was entered at [`MAX_DEPTH`].
    pub too_deep: u64,
    /// The node that was entered last.
    pub entered: u32,
}

impl Tree {
    pub fn new() -> Self {
        let root = Node { parent: ROOT, function: NO_FUNCTION, instructions: 0, calls: 0, depth: 0 };
        Self { nodes: vec![root], children: WordMap::default(), too_deep: 0, entered: ROOT }
    }

    pub fn function(&self, node: u32) -> u32 {
        self.nodes[node as usize].function
    }

    pub fn parent(&self, node: u32) -> u32 {
        self.nodes[node as usize].parent
    }

    /// The node of a function that is called in the context `parent`.
    pub fn child(&mut self, parent: u32, function: u32) -> u32 {
        let mut parent = parent;
        if self.nodes[parent as usize].depth >= MAX_DEPTH {
            self.too_deep += 1;
            parent = self.parent(parent);
        }
        let next = self.nodes.len() as u32;
        let nodes = &mut self.nodes;
        *self.children.entry(u64::from(parent) << 32 | u64::from(function)).or_insert_with(|| {
            let depth = nodes[parent as usize].depth + 1;
            nodes.push(Node { parent, function, instructions: 0, calls: 0, depth });
            next
        })
    }

    pub fn enter(&mut self, node: u32) {
        self.entered = node;
        self.nodes[node as usize].calls += 1;
    }
}
