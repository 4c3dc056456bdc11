//! The tables that all threads share: strings, images, files, functions, frames, stacks. Stage: output.
//!
//! In: the places of all stacks. Out: the tables as columns, and for each stack the number of its node in the tree of
//! stacks. A node is a frame and the node of its caller; parents come before their children.

use super::list;
use crate::by_address::AddressHasher;
use crate::fold::frames::FrameId;
use crate::output::export::places::{Kind, Place};
use crate::output::export::{Input, Reason};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::io::{self, Write};

/// Numbers of categories: what has no other, settings, and lost samples.
pub const OTHER: usize = 0;
pub const SETTINGS: usize = 5;
pub const LOST: usize = 6;
/// Root nodes have no parent.
const NO_PARENT: u32 = u32::MAX;

/// The categories; their colours are the reader's.
pub fn categories() -> Value {
    let category = |name: &str, color: &str| json!({ "name": name, "color": color, "subcategories": ["Other"] });
    json!([
        category("Other", "grey"),
        category("Kernel", "orange"),
        category("Interrupt or exception", "yellow"),
        category("User", "green"),
        category("Idle", "transparent"),
        category("Setting", "blue"),
        category("Lost", "red"),
    ])
}

/// The category of a kind of code.
pub fn category(kind: Kind) -> usize {
    match kind {
        Kind::Kernel => 1,
        Kind::Interrupt => 2,
        Kind::User => 3,
        Kind::Idle => 4,
    }
}

/// The category of ticks without a sample.
pub fn category_of(reason: Reason) -> usize {
    match reason {
        Reason::Lost => LOST,
        Reason::User => category(Kind::User),
        Reason::Idle => category(Kind::Idle),
        Reason::Filtered => category(Kind::Kernel),
        Reason::Coalesced => OTHER,
    }
}

/// Numbers in the order in which keys first come.
struct Numbers<K>(HashMap<K, u32>, Vec<K>);

impl<K: Clone + Eq + std::hash::Hash> Numbers<K> {
    fn new() -> Self {
        Self(HashMap::new(), Vec::new())
    }

    fn of(&mut self, key: K) -> u32 {
        let next = self.1.len() as u32;
        *self.0.entry(key).or_insert_with_key(|key| {
            self.1.push(key.clone());
            next
        })
    }
}

/// A function: its name, its image (the kernel is 0), its file.
type Function = (u32, Option<u32>, Option<u32>);
/// The function that contains the code: image, address, name.
type Symbol = (u32, u64, FrameId);

/// The tables.
pub struct Tables {
    /// The node of each stack; of stacks that no sample has it is 0.
    pub node_of_stack: Vec<u32>,
    /// The nodes of the functions that stand for something besides, such as lost samples.
    pub beside: Vec<u32>,
    /// The categories of these functions.
    categories: Vec<usize>,
    /// The strings `mark` and `setting`.
    pub mark: u32,
    /// See [`mark`](Self::mark).
    pub setting: u32,
    strings: Vec<String>,
    functions: Numbers<Function>,
    symbols: Numbers<Symbol>,
    files: Numbers<FrameId>,
    /// For each frame its function and its symbol.
    frames: Vec<(u32, Option<u32>)>,
    /// For each node its parent and its frame.
    nodes: Vec<(u32, u32)>,
}

impl Tables {
    /// Makes the tables. `beside` are names and categories of functions that stand for something besides.
    pub fn new(input: &Input<'_>, beside: &[(&str, usize)]) -> Self {
        let (places, first) = (&input.places, input.places.names.len() as u32);
        let mut strings = vec!["mark".to_owned(), "setting".to_owned(), input.kernel.clone()];
        strings.extend(places.images.iter().map(|image| image.name.clone()));
        let first_beside = first + strings.len() as u32;
        strings.extend(beside.iter().map(|(name, _)| (*name).to_owned()));
        let (mut functions, mut symbols, mut files) = (Numbers::new(), Numbers::new(), Numbers::new());
        let mut frame = |place: &Place| {
            let file = place.line.map(|(file, _)| files.of(file));
            let image = place.symbol.map(|_| place.image);
            let symbol = place.symbol.map(|(start, name)| symbols.of((place.image, start, name)));
            (functions.of((place.function, image, file)), symbol)
        };
        let mut frames: Vec<_> = places.places.iter().map(&mut frame).collect();
        let frames_beside = frames.len() as u32..;
        frames.extend((first_beside..).zip(beside).map(|(name, _)| (functions.of((name, None, None)), None)));
        let mut known: HashMap<(u32, u32), u32, BuildHasherDefault<AddressHasher>> = HashMap::default();
        let mut nodes = Vec::new();
        let mut node = |parent: u32, frame: u32| {
            *known.entry((parent, frame)).or_insert_with(|| {
                nodes.push((parent, frame));
                nodes.len() as u32 - 1
            })
        };
        let categories = beside.iter().map(|(_, category)| *category);
        let beside: Vec<u32> = frames_beside.zip(beside).map(|(frame, _)| node(NO_PARENT, frame)).collect();
        let mut node_of_stack = Vec::new();
        for stack in places.stacks() {
            node_of_stack.resize(stack as usize + 1, 0);
            node_of_stack[stack as usize] =
                places.of(stack).iter().fold(NO_PARENT, |parent, frame| node(parent, *frame));
        }
        let (mark, setting) = (first, first + 1);
        let categories = categories.collect();
        Self { node_of_stack, beside, categories, mark, setting, strings, functions, symbols, files, frames, nodes }
    }

    /// The kernel and the images.
    pub fn libs(&self, input: &Input<'_>) -> Vec<Value> {
        let lib = |name: &str, path: &str, build_id: Option<&str>| {
            let breakpad = build_id.map_or_else(String::new, breakpad_id);
            let (debug, code) = (json!(name), json!(build_id));
            json!({ "arch": input.arch, "name": name, "path": path, "debugName": debug, "debugPath": path,
                "breakpadId": breakpad, "codeId": code })
        };
        let kernel = lib("kernel", &input.kernel, input.build_id.as_deref());
        let images = input.places.images.iter();
        [kernel].into_iter().chain(images.map(|one| lib(&one.name, &one.name, one.build_id.as_deref()))).collect()
    }

    /// Writes the tables.
    pub fn write(&self, input: &Input<'_>, out: &mut dyn Write) -> io::Result<()> {
        let (names, places) = (&input.places.names, &input.places.places);
        let (strings, images) = (names.len(), input.places.images.len() + 1);
        write!(out, "{{\"stringArray\":")?;
        let all = (0..names.len() as u32).map(|id| names.name(id)).chain(self.strings.iter().map(String::as_str));
        list(out, all, |out, name| out.extend(json!(name).to_string().bytes()))?;
        let files = &self.files.1;
        write!(out, ",\"sources\":{{\"length\":{}", files.len())?;
        column(out, "id", files, |_| Value::Null)?;
        column(out, "filename", files, |file| json!(file))?;
        column(out, "startLine", files, |_| json!(1))?;
        column(out, "startColumn", files, |_| json!(1))?;
        column(out, "sourceMapURL", files, |_| Value::Null)?;
        write!(out, "}},\"resourceTable\":{{\"length\":{images}")?;
        column(out, "lib", 0..images, |image| json!(image))?;
        column(out, "name", 0..images, |image| json!(strings + 2 + image))?;
        column(out, "host", 0..images, |_| Value::Null)?;
        column(out, "type", 0..images, |_| json!(1))?;
        let functions = &self.functions.1;
        write!(out, "}},\"funcTable\":{{\"length\":{}", functions.len())?;
        column(out, "name", functions, |(name, ..)| json!(name))?;
        column(out, "isJS", functions, |_| json!(false))?;
        column(out, "relevantForJS", functions, |_| json!(false))?;
        column(out, "resource", functions, |(_, image, _)| json!(image.map_or(-1, i64::from)))?;
        column(out, "source", functions, |(.., file)| json!(file))?;
        column(out, "lineNumber", functions, |_| Value::Null)?;
        column(out, "columnNumber", functions, |_| Value::Null)?;
        let symbols = &self.symbols.1;
        write!(out, "}},\"nativeSymbols\":{{\"length\":{}", symbols.len())?;
        column(out, "libIndex", symbols, |(image, ..)| json!(image))?;
        column(out, "address", symbols, |(image, start, _)| json!(input.within_image(*image, *start)))?;
        column(out, "name", symbols, |(.., name)| json!(name))?;
        column(out, "functionSize", symbols, |_| Value::Null)?;
        // The last frames stand for something besides; all others are places.
        let beside = || self.categories.iter().map(|category| Err(*category));
        let frames = || self.frames.iter().zip(places.iter().map(Ok).chain(beside()));
        write!(out, "}},\"frameTable\":{{\"length\":{}", self.frames.len())?;
        let address =
            |place: &Place| place.symbol.map_or(-1, |_| input.within_image(place.image, place.address) as i64);
        column(out, "address", frames(), |(_, place)| json!(place.map_or(-1, address)))?;
        column(out, "inlineDepth", frames(), |(_, place)| json!(place.map_or(0, |place| place.depth)))?;
        column(out, "category", frames(), |(_, place)| {
            json!(place.map_or_else(|besides| besides, |place| category(place.kind)))
        })?;
        column(out, "subcategory", frames(), |_| json!(0))?;
        column(out, "func", frames(), |((function, _), _)| json!(function))?;
        column(out, "nativeSymbol", frames(), |((_, symbol), _)| json!(symbol))?;
        column(out, "innerWindowID", frames(), |_| json!(0))?;
        column(out, "line", frames(), |(_, place)| {
            json!(place.ok().and_then(|place| place.line).map(|(_, line)| line))
        })?;
        column(out, "column", frames(), |_| Value::Null)?;
        write!(out, "}},\"stackTable\":{{\"length\":{}", self.nodes.len())?;
        column(out, "prefix", &self.nodes, |(parent, _)| json!((*parent != NO_PARENT).then_some(parent)))?;
        column(out, "frame", &self.nodes, |(_, frame)| json!(frame))?;
        write!(out, "}}}}")
    }
}

fn column<T>(
    out: &mut dyn Write,
    name: &str,
    rows: impl IntoIterator<Item = T>,
    value: impl Fn(T) -> Value,
) -> io::Result<()> {
    write!(out, ",\"{name}\":")?;
    list(out, rows, |out, row| out.extend(value(row).to_string().bytes()))
}

/// The identifier by which symbol servers know an image: the first 16 bytes of its build id as a GUID, whose first
/// three parts are little-endian, and the age 0.
fn breakpad_id(build_id: &str) -> String {
    let digits: Vec<&str> = (0..32).step_by(2).filter_map(|at| build_id.get(at..at + 2)).collect();
    let is_hex = |pair: &&str| pair.bytes().all(|digit| digit.is_ascii_hexdigit());
    if digits.len() < 16 || !digits.iter().all(is_hex) {
        return String::new();
    }
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    order.map(|at| digits[at]).concat().to_uppercase() + "0"
}

#[cfg(test)]
mod tests {
    use super::breakpad_id;

    #[test]
    fn a_build_id_is_named_as_symbol_servers_name_it() {
        let id = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(breakpad_id(id), "67452301AB89EFCD0123456789ABCDEF0");
        assert_eq!((breakpad_id("0123"), breakpad_id("zz")), (String::new(), String::new()));
    }
}
