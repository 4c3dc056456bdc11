//! The screen of `top`: its rows, how they are sorted and scrolled, and what the last interval added. Stage: command
//! line.
//!
//! In: functions with their samples so far, and keys. Out: a table: shares of all samples, beside them the shares of
//! the samples that came since the last read. After a file was rotated away, counting starts again.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};
use std::collections::HashMap;
use std::time::Duration;

/// Rows that a page key moves, at most; the height of the screen is not known here.
const PAGE: usize = 10;

/// Two counts of a function: the samples in which it is innermost, and the samples in whose stack it is.
pub type Counts = (u64, u64);

/// A function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// All its samples.
    pub all: Counts,
    /// Its samples of the last interval.
    pub last: Counts,
}

/// The content of the screen.
#[derive(Debug, Default)]
pub struct Screen {
    /// First line.
    pub title: String,
    /// The functions by self time.
    pub functions: Vec<Function>,
    /// The number of samples, and the number of samples that were lost.
    pub whole: (u64, u64),
    /// Number of samples and of lost samples in the last interval, and how long the interval took.
    pub last: Option<(u64, u64, Duration)>,
    /// The exit code if this is the last screen.
    pub code: u8,
    /// What is counted, if it is not samples. Then everything that was lost is among the functions.
    pub event: Option<Weights>,
}

/// What is counted with `--event`.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The unit.
    pub unit: String,
    /// Whether every hit was to be recorded, so that no weight is an estimate. `None` if weights also become less, as
    /// those of allocations that are freed do.
    pub is_exact: Option<bool>,
}

/// By what the functions are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Self time.
    #[default]
    SelfSamples,
    /// Total time.
    Total,
    /// Self time of the last interval.
    Last,
    /// Name.
    Name,
}

/// Which part of the table is shown, and in which order.
#[derive(Clone, Copy, Debug, Default)]
pub struct View {
    /// The order of the functions.
    pub sort: Sort,
    /// The number of the first function that is shown.
    pub first: usize,
}

impl View {
    /// Changes the view; returns false if the user wants to leave.
    pub fn key(&mut self, key: KeyEvent, functions: usize) -> bool {
        let sort = |view: &mut Self, sort| *view = Self { sort, first: 0 };
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('s') => sort(self, Sort::SelfSamples),
            KeyCode::Char('t') => sort(self, Sort::Total),
            KeyCode::Char('l') => sort(self, Sort::Last),
            KeyCode::Char('n') => sort(self, Sort::Name),
            KeyCode::Down | KeyCode::Char('j') => self.first += 1,
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first += PAGE,
            KeyCode::PageUp => self.first = self.first.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.first = 0,
            KeyCode::End | KeyCode::Char('G') => self.first = usize::MAX,
            _ => {}
        }
        self.first = self.first.min(functions.saturating_sub(1));
        true
    }
}

impl Screen {
    /// Sets what came since `before`, which was read this long ago.
    pub fn since(&mut self, before: &Self, elapsed: Duration) {
        let is_exact = self.event.as_ref().map_or(Some(true), |event| event.is_exact);
        if is_exact.is_none() {
            return;
        }
        let counts: HashMap<&str, Counts> = before.functions.iter().map(|row| (&row.name[..], row.all)).collect();
        // Fewer samples than before: another file has taken the place of the one that was read.
        let is_new = self.whole.0 < before.whole.0 || before.functions.is_empty();
        if is_new {
            return;
        }
        for row in &mut self.functions {
            let (own, total) = counts.get(&row.name[..]).copied().unwrap_or_default();
            row.last = (row.all.0.saturating_sub(own), row.all.1.saturating_sub(total));
        }
        let added = |now: u64, then: u64| now.saturating_sub(then);
        self.last = Some((added(self.whole.0, before.whole.0), added(self.whole.1, before.whole.1), elapsed));
    }

    /// The width of the column with numbers of samples or weights.
    fn width(&self, heading: usize) -> usize {
        let most = self.functions.iter().map(|row| row.all.0).max().unwrap_or(0);
        most.to_string().len().max(heading).max(9)
    }

    /// Whether it is known what the last interval has added to each function. Estimates of a sampled point are scaled
    /// again each time, so the differences between two of them are not those of the interval.
    fn knows_last(&self) -> bool {
        self.last.is_some() && self.event.as_ref().is_none_or(|event| event.is_exact == Some(true))
    }

    /// The functions in the order of a view.
    pub fn sorted(&self, sort: Sort) -> Vec<&Function> {
        let mut rows: Vec<&Function> = self.functions.iter().collect();
        // The sort is stable, so equal functions stay in the order of their self time.
        match sort {
            Sort::SelfSamples => {}
            Sort::Total => rows.sort_by_key(|row| std::cmp::Reverse(row.all.1)),
            Sort::Last => rows.sort_by_key(|row| std::cmp::Reverse(row.last)),
            Sort::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
        }
        rows
    }

    /// The second line: the rate of the last interval, and by what the table is sorted.
    fn status(&self, view: View) -> String {
        let sort = match view.sort {
            Sort::SelfSamples => "self",
            Sort::Total => "total",
            Sort::Last => "last interval",
            Sort::Name => "name",
        };
        let rate = match self.last {
            Some((samples, lost, elapsed)) => {
                let (seconds, unit) = (elapsed.as_secs_f64(), self.event.as_ref().map(|event| &event.unit[..]));
                let per_second = samples as f64 / seconds.max(1e-3);
                let lost = if unit.is_none() { format!(", {lost} lost") } else { String::new() };
                let why = if self.knows_last() { "" } else { ", not known by function (not every hit is recorded)" };
                let unit = unit.unwrap_or("samples");
                format!("last {seconds:.1} s: {samples} {unit} ({per_second:.0} a second){lost}{why}; ")
            }
            None => String::new(),
        };
        let count = self.functions.len();
        format!("{rate}functions {} to {count} of {count} by {sort}", (view.first + 1).min(count))
    }
}

/// A share in percent.
pub fn percent(part: u64, (samples, lost): (u64, u64)) -> String {
    format!("{:.2}", part as f64 * 100.0 / samples.saturating_add(lost).max(1) as f64)
}

/// Draws the screen.
pub fn draw(frame: &mut ratatui::Frame<'_>, screen: &Screen, view: View) {
    let lines = [Constraint::Length(1), Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)];
    let [title, status, body, foot] = Layout::vertical(lines).areas(frame.area());
    frame.render_widget(Line::from(screen.title.as_str()).style(Style::new().add_modifier(Modifier::BOLD)), title);
    frame.render_widget(Line::from(screen.status(view)), status);
    let shown = screen.sorted(view.sort);
    let rows = shown.iter().skip(view.first).take(body.height.into()).map(|row| {
        let known = screen.last.filter(|_| screen.knows_last());
        let last = |part| known.map_or_else(String::new, |(samples, lost, _)| percent(part, (samples, lost)));
        let (own, total) = (percent(row.all.0, screen.whole), percent(row.all.1, screen.whole));
        Row::new([own, total, last(row.last.0), last(row.last.1), row.all.0.to_string(), row.name.clone()])
    });
    let narrow = Constraint::Length(7);
    let unit = screen.event.as_ref().map_or("samples", |event| &event.unit);
    let width = u16::try_from(screen.width(unit.len())).unwrap_or(20);
    let widths = [narrow, narrow, narrow, narrow, Constraint::Length(width), Constraint::Min(10)];
    let header = Row::new(["self %", "total %", "last s.", "last t.", unit, "function"]);
    let header = header.style(Style::new().add_modifier(Modifier::REVERSED));
    frame.render_widget(Table::new(rows, widths).header(header), body);
    let keys = "q quit | sort: s self, t total, l last interval, n name | scroll: arrows, PgUp, PgDn, Home, End";
    frame.render_widget(Paragraph::new(keys), foot);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn function(name: &str, all: Counts) -> Function {
        Function { name: name.to_owned(), all, ..Function::default() }
    }

    fn screen(functions: &[(&str, Counts)], whole: (u64, u64)) -> Screen {
        let functions = functions.iter().map(|(name, all)| function(name, *all)).collect();
        Screen { title: "profiling.txt".to_owned(), functions, whole, ..Screen::default() }
    }

    fn drawn(screen: &Screen, view: View) -> Vec<Vec<String>> {
        let mut terminal = Terminal::new(TestBackend::new(90, 6)).expect("memory is a terminal");
        terminal.draw(|frame| draw(frame, screen, view)).expect("memory takes everything");
        let words = |line: &str| line.trim_matches('"').split_whitespace().map(str::to_owned).collect();
        terminal.backend().to_string().lines().map(words).collect()
    }

    fn press(view: &mut View, code: KeyCode) -> bool {
        view.key(KeyEvent::from(code), 3)
    }

    #[test]
    fn the_last_interval_stands_beside_all_samples() {
        let before = screen(&[("map", (30, 40)), ("write", (10, 10))], (40, 0));
        let mut now = screen(&[("map", (32, 44)), ("write", (18, 18)), ("new", (5, 5))], (60, 20));
        now.since(&before, Duration::from_secs(2));
        let lines = drawn(&now, View { sort: Sort::Last, first: 0 });
        let text = lines[1].join(" ");
        assert_eq!(text, "last 2.0 s: 20 samples (10 a second), 20 lost; functions 1 to 3 of 3 by last interval");
        assert_eq!(lines[3], ["22.50", "22.50", "20.00", "20.00", "18", "write"]);
        assert_eq!(lines[4], ["6.25", "6.25", "12.50", "12.50", "5", "new"]);
    }

    #[test]
    fn weights_have_their_unit_and_an_interval_by_function_only_if_they_are_exact() {
        for (is_exact, status, row) in [
            (
                Some(true),
                "last 2.0 s: 600 bytes (300 a second); functions 1 to 1 of 1 by self",
                "100.00 100.00 100.00 100.00 1600 map",
            ),
            (
                Some(false),
                "last 2.0 s: 600 bytes (300 a second), not known by function (not every hit is recorded); functions \
                 1 to 1 of 1 by self",
                "100.00 100.00 1600 map",
            ),
            // Allocations that were freed since: there may be less than before, and no file has changed.
            (None, "functions 1 to 1 of 1 by self", "100.00 100.00 1600 map"),
        ] {
            let before = screen(&[("map", (1000, 1000))], (1000, 0));
            let mut now = screen(&[("map", (1600, 1600))], (1600, 0));
            now.event = Some(Weights { unit: "bytes".to_owned(), is_exact });
            now.since(&before, Duration::from_secs(2));
            let mut terminal = Terminal::new(TestBackend::new(140, 6)).expect("memory is a terminal");
            terminal.draw(|frame| draw(frame, &now, View::default())).expect("memory takes everything");
            let lines: Vec<String> = terminal.backend().to_string().lines().map(str::to_owned).collect();
            let words = |line: &str| line.trim_matches('"').split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!((words(&lines[1]), words(&lines[3])), (status.to_owned(), row.to_owned()));
            assert!(lines[2].contains("bytes") && !lines[2].contains("samples"), "{}", lines[2]);
        }
    }

    #[test]
    fn a_file_that_was_rotated_away_starts_again() {
        let before = screen(&[("map", (30, 40))], (40, 0));
        let mut now = screen(&[("map", (3, 4))], (4, 0));
        now.since(&before, Duration::from_secs(1));
        assert_eq!((now.last, now.functions[0].last), (None, (0, 0)));
        assert_eq!(drawn(&now, View::default())[3], ["75.00", "100.00", "3", "map"]);
    }

    #[test]
    fn keys_sort_and_scroll_and_never_leave_the_table() {
        let now = screen(&[("b", (5, 5)), ("a", (4, 9)), ("c", (0, 9))], (9, 0));
        let names =
            |view: View| now.sorted(view.sort).iter().skip(view.first).map(|row| row.name.clone()).collect::<String>();
        let mut view = View::default();
        for (code, expected) in [
            (KeyCode::Down, "ac"),
            (KeyCode::End, "c"),
            (KeyCode::Down, "c"),
            (KeyCode::PageUp, "bac"),
            (KeyCode::Up, "bac"),
            (KeyCode::Char('j'), "ac"),
            (KeyCode::Char('t'), "acb"),
            (KeyCode::Char('n'), "abc"),
            (KeyCode::PageDown, "c"),
            (KeyCode::Char('s'), "bac"),
        ] {
            assert!(press(&mut view, code));
            assert_eq!(names(view), expected, "{code:?}");
        }
        assert!(!press(&mut view, KeyCode::Char('q')) && !press(&mut view, KeyCode::Esc));
        assert!(view.key(KeyEvent::from(KeyCode::End), 0) && view.first == 0);
    }
}
