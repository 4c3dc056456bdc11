//! `diff`. Stage: command line.
//!
//! In: two profiles or two files of folded stacks. Out: the comparison, and exit code 4 if a claim holds.

use super::args::{Diff, DiffFormat, ImageFile, Input};
use super::out;
use super::{load, nearest, talk};
use crate::account::Account;
use crate::diff::{self, claim::Claim, output};
use crate::error::Error;
use crate::fold::Folded;
use crate::output::folded;
use crate::problems::Problems;
use crate::symbols::Symbols;
use crate::symbols::name::visible;
use std::io::Read;

/// Exit code: a claim of `--fail-if` holds.
pub const CLAIM_HOLDS: u8 = 4;

/// `diff`.
pub fn run(args: &Diff) -> Result<u8, Error> {
    let side = |file: &str, syms: &Option<String>, images: &[ImageFile]| {
        let images = [&args.image, images].concat();
        let input = input(args, file, syms.as_deref().or(args.syms.as_deref()).unwrap_or_default(), images);
        if input.syms.is_empty() {
            if !input.image.is_empty() {
                return Err(Error::Usage("--image belongs to profiles; give --syms with them".to_owned()));
            }
            let (folded, lost) = folded_file(file)?;
            let kept = (folded.samples(), lost);
            let code = load::exit_code(args.limits, &Problems::default(), &Account::default(), kept);
            return Ok(Side { folded, symbols: None, code });
        }
        let loaded = load::load(&input, &args.choice)?;
        let code = loaded.exit_code(args.limits);
        Ok(Side { folded: loaded.folded, symbols: Some(loaded.symbols), code })
    };
    let (old, new) =
        (side(&args.old, &args.old_syms, &args.old_image)?, side(&args.new, &args.new_syms, &args.new_image)?);
    let compared = diff::compare(&old.folded, &new.folded, args.confidence, args.subtrees, args.same_work);
    if args.subtrees && [&old, &new].iter().any(|side| diff::has_longer_paths(&side.folded)) {
        let talk = talk::Talk { quiet: args.quiet };
        talk.say(format_args!("of paths of more than {} frames the outermost {0} are compared", diff::MAX_PATH));
    }
    let style = output::Style { old_name: args.old.clone(), new_name: args.new.clone(), top: args.top };
    let symbols = [&args.syms, &args.old_syms, &args.new_syms].into_iter().flatten();
    let images = args.image.iter().chain(&args.old_image).chain(&args.new_image).map(|image| &image.file);
    let inputs: Vec<&str> =
        [&args.old, &args.new].into_iter().chain(symbols).chain(images).map(String::as_str).collect();
    let output = args.output.as_deref();
    out::put(output, args.quiet, &inputs, |out| {
        let bytes = match args.format {
            DiffFormat::Text => output::text(&compared, &style).into_bytes(),
            DiffFormat::Markdown => output::markdown(&compared, &style).into_bytes(),
            DiffFormat::Json => format!("{:#}\n", output::json(&compared, &style)).into_bytes(),
            DiffFormat::Flamegraph => flamegraph(args, &old.folded, &new.folded)?,
        };
        out.write_all(&bytes).map_err(|error| out::not_written(output, error))
    })?;
    for claim in &args.fail_if {
        refuse_unknown(claim, &compared, [&old, &new])?;
    }
    // The user asked about the claim, so its exit code takes precedence.
    let mut code = old.code.max(new.code);
    for claim in &args.fail_if {
        for row in claim.holds(&compared) {
            let (low, high) = (row.change.low * 100.0, row.change.high * 100.0);
            talk::print(format_args!(
                "claim holds: {} of {} changed by {low:+.2} to {high:+.2} % of all samples from {} to {}",
                row.kind.word(),
                row.name,
                args.old,
                args.new
            ));
            code = CLAIM_HOLDS;
        }
    }
    Ok(code)
}

/// One side of the comparison.
struct Side {
    folded: Folded,
    symbols: Option<Symbols>,
    code: u8,
}

/// Refuses a claim about a function that does not exist, because such a claim would always pass. A claim about an
/// existing function without samples passes correctly.
fn refuse_unknown(claim: &Claim, compared: &diff::Diff, sides: [&Side; 2]) -> Result<(), Error> {
    let name = |symbols: &Symbols, number| diff::unify(&symbols.function(number));
    let is_symbol = |symbols: &Symbols| (0..symbols.len()).any(|number| claim.pattern().fits(&name(symbols, number)));
    if compared.rows.iter().any(|row| claim.speaks_of(row))
        || sides.iter().filter_map(|side| side.symbols.as_ref()).any(is_symbol)
    {
        return Ok(());
    }
    let meant = nearest::did_you_mean(claim.pattern().as_str(), compared.rows.iter().map(|row| &row.name[..]));
    Err(Error::Usage(format!("--fail-if '{}': neither side has such a function{meant}", claim.as_str())))
}

fn input(args: &Diff, file: &str, syms: &str, image: Vec<ImageFile>) -> Input {
    Input {
        file: file.to_owned(),
        syms: syms.to_owned(),
        rest: Vec::new(),
        form: None,
        force: args.force,
        image,
        user_syms: Vec::new(),
        strict: args.limits.strict,
        max_loss: args.limits.max_loss,
        quiet: args.quiet,
        output: args.output.clone(),
    }
}

/// Reads lines of folded stacks, `frame;frame COUNT`. Returns them with the number of lost samples in them.
fn folded_file(file: &str) -> Result<(Folded, u64), Error> {
    let mut text = Vec::new();
    crate::read::open(file)?.read_to_end(&mut text).map_err(|error| Error::io(file, "read", error))?;
    let text = String::from_utf8_lossy(&text);
    let (mut folded, mut lost) = (Folded::default(), 0u64);
    for (number, line) in text.lines().enumerate() {
        let parsed = line.rsplit_once(' ').and_then(|(stack, count)| Some((stack, count.parse::<u64>().ok()?)));
        let Some((stack, samples)) = parsed else {
            let todo = "not a line of folded stacks; give --syms if these are profiles";
            return Err(Error::unusable(file, format!("line {}: {todo}", number + 1)));
        };
        if [folded::LOST, folded::LOST_ANYWHERE].contains(&stack) {
            lost = lost.saturating_add(samples);
        } else {
            let frames: Vec<_> = stack.split(';').map(|name| folded.frames.named(name)).collect();
            folded.push(frames, samples);
        }
    }
    if folded.stacks.is_empty() {
        return Err(Error::unusable(file, "has no stacks"));
    }
    Ok((folded, lost))
}

/// Draws both sides in one flame graph with the inferno library; OLD is scaled to NEW's number of samples.
fn flamegraph(args: &Diff, old: &Folded, new: &Folded) -> Result<Vec<u8>, Error> {
    let lines = |folded: &Folded| {
        let mut text = Vec::new();
        let done = folded::write(folded, 0, &mut text);
        done.map(|()| text).map_err(|error| Error::io("memory", "write", error))
    };
    let (old, new) = (lines(old)?, lines(new)?);
    let failed = |error| Error::io("the flame graph", "write", error);
    let mut both = Vec::new();
    let options = inferno::differential::Options { normalize: true, strip_hex: false };
    inferno::differential::from_readers(options, &old[..], &new[..], &mut both).map_err(failed)?;
    let mut options = inferno::flamegraph::Options::default();
    options.title = visible(&format!("from {} (OLD) to {} (NEW)", args.old, args.new)).into_owned();
    options.subtitle = Some("red grew, blue shrank; widths are those of NEW".to_owned());
    options.count_name = "samples".to_owned();
    let mut svg = Vec::new();
    inferno::flamegraph::from_reader(&mut options, &both[..], &mut svg).map_err(failed)?;
    Ok(svg)
}
