//! Finds the functions of a kernel that can be probed. Stage: the subcommand `probes`.
//!
//! In: the kernel's ELF file for x86_64, and names of its handlers, if they are not called as usual. Out: each function
//! with the instructions that leave it, or with the reason why it cannot be probed. Runs on the host. Never guesses: a
//! wrong place makes the kernel execute something else.
//!
//! ```text
//! symbols ─► body ─► exits (switch) ─┬─► functions
//!              └───► graph ─► handlers ─┘
//! ```

pub mod body;
pub mod exits;
pub mod graph;
pub mod handlers;
pub mod switch;
pub mod unsupported;

use crate::cli::nearest::did_you_mean;
use crate::error::Error;
use crate::symbols::Symbols;
use body::Body;
use graph::Graph;
use handlers::Handlers;
use unsupported::Unsupported;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its address in the file.
    pub address: u64,
    /// Its name.
    pub name: String,
    /// The distances of the instructions that leave it, or why it cannot be probed.
    pub exits: Result<Vec<u64>, Unsupported>,
}

/// The functions of a kernel, and what is known of its handlers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The functions, by address.
    pub functions: Vec<Function>,
    /// The names of the handlers.
    pub handlers: Vec<String>,
    /// Functions that the handlers may execute and that call what they do not name.
    pub with_unknown_calls: Vec<String>,
}

/// Finds all functions. `given` are names of handlers.
///
/// # Errors
/// If the file is not for x86_64, if it has no function with a name that was given, or if no handler is found.
pub fn find(file: &str, symbols: &Symbols, given: &[String]) -> Result<Found, Error> {
    let Some(elf) = symbols.elf.as_ref().filter(|elf| elf.is_x86_64()) else {
        return Err(Error::unusable(file, "is no ELF file for x86_64: give the kernel as the linker made it"));
    };
    let table = &symbols.table;
    let names: Vec<String> = (0..table.len()).map(|number| symbols.plain_name(number).into_owned()).collect();
    let decoded = (0..table.len()).map(|number| symbols.code(number).map(|(start, code)| Body::decode(code, start)));
    let bodies: Vec<Option<Body<'_>>> = decoded.collect();
    let constant = |address| elf.constant(address);
    let mut graph = Graph::default();
    for (number, body) in bodies.iter().enumerate() {
        if let Some(body) = body {
            graph.add(number, body, &symbols);
        }
    }
    let handlers = Handlers::find(&names, &bodies, elf, given);
    check(file, &names, &handlers, given)?;
    let executed = handlers.executed(&graph, &bodies, &symbols);
    let entered = graph.entered_inside(|number| table.get(number).start);
    let exits = |number: usize| {
        let (symbol, body) = (table.get(number), bodies[number].as_ref());
        let next = (number + 1 < table.len()).then(|| table.get(number + 1).start);
        if symbol.size == 0 {
            return Err(Unsupported::NoSize);
        }
        let body = body.filter(|body| body.code.len() as u64 == symbol.size).ok_or(Unsupported::NoCode)?;
        if symbol.start < elf.base {
            return Err(Unsupported::BelowKernel);
        }
        if let Some(next) = next.filter(|next| body.contains(*next)).and_then(|next| table.find(next)) {
            return Err(Unsupported::SymbolInside(names[next].clone()));
        }
        let exits = exits::exits(body, &constant)?;
        match entered.get(&number) {
            Some(other) => Err(Unsupported::EnteredInside(names[*other].clone())),
            None if executed.functions.contains(&number) => Err(Unsupported::Handler),
            None => Ok(exits),
        }
    };
    let function = |number: usize| Function {
        address: table.get(number).start,
        name: names[number].clone(),
        exits: exits(number),
    };
    let named = |numbers: &mut dyn Iterator<Item = &usize>| numbers.map(|number| names[*number].clone()).collect();
    Ok(Found {
        functions: (0..table.len()).map(function).collect(),
        handlers: named(&mut handlers.all().iter()),
        with_unknown_calls: named(&mut executed.with_unknown_calls.iter()),
    })
}

/// Refuses names that no function has, and a kernel whose handlers are not found: what they execute is not known.
fn check(file: &str, names: &[String], handlers: &Handlers, given: &[String]) -> Result<(), Error> {
    for name in given {
        if !names.iter().any(|one| handlers::is_named(one, name)) {
            let meant = did_you_mean(name, names.iter().map(String::as_str));
            return Err(Error::Usage(format!("--handler {name}: {file} has no such function{meant}")));
        }
    }
    let missing = match (handlers.ticks.is_empty(), handlers.breakpoints.is_empty()) {
        (false, false) => return Ok(()),
        (true, false) => "no function that takes ticks (on_nmi, on_timer, on_overflow of kprof, nmi, nmi_entry)",
        (_, true) => "no function that handles breakpoints (on_breakpoint of kprof, breakpoint, breakpoint_entry)",
    };
    let why = "so it is not known which functions must not have a probe";
    let todo = "give the kernel with its DWARF, or each handler's entry function with --handler NAME";
    Err(Error::unusable(file, format!("{missing} is found, {why}; {todo}")))
}
