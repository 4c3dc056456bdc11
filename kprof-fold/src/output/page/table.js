// The table of functions. In: self and total samples of each function, and what the user has sorted and filtered by.
// Out: rows. It shows a part of a long table, and says so.

/// Rows that are shown before the user asks for all.
const SHOWN_ROWS = 100;

/// A test for a text or, in slashes, a regular expression. Without a text null; `problem` if the expression is wrong.
function matcher(text) {
  if (!text) return { fits: null };
  const regex = /^\/(.*)\/(i?)$/.exec(text);
  try {
    const test = regex ? new RegExp(regex[1], regex[2]) : null;
    const lower = text.toLowerCase();
    return { fits: test ? (name) => test.test(name) : (name) => name.toLowerCase().includes(lower) };
  } catch (error) {
    return { fits: null, problem: error.message };
  }
}

/// An element with a text and children.
function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

class FunctionTable {
  /// `chosen` is called with a function, `sorted` with the name of a column.
  constructor(table, more, shown, data, chosen, sorted) {
    Object.assign(this, { table, more, shown, data, chosen, sorted, limit: SHOWN_ROWS });
    more.addEventListener("click", () => {
      this.limit = Infinity;
      this.show(this.last);
    });
  }

  /// The columns: name, title, and the text of a row.
  columns({ all, old }) {
    const share = (part) => ({ text: percent(part, all), bar: part / Math.max(all, 1) });
    const plain = [
      ["self", "Self", (row) => share(row.self)],
      [null, unit.name, (row) => ({ text: amount(row.self) })],
      ["total", "Total", (row) => share(row.total)],
      [null, unit.name, (row) => ({ text: amount(row.total) })],
    ];
    if (!old) return plain;
    const before = [null, "before (whole)", (row) => ({ text: percent(row.oldTotal, old.all) })];
    const pale = (text) => (row) => ({ text: text(row), isPale: !isCertain(row.interval) });
    const change = (title) => ["change", title, pale((row) => (row.isBeside ? "" : points(row.change)))];
    const interval = [null, "interval (whole recordings)",
      pale(({ interval }) => (!interval ? "" : isExact(interval) ? "exact" : rangeOf(interval)))];
    if (!unit.isWeight) return [...plain, before, change("Change"), interval];
    return [
      ...plain,
      before,
      [null, unit.name, (row) => ({ text: amount(row.oldTotal) })],
      change("Change in points"),
      [null, `${unit.name} more (whole)`,
        pale(({ interval }) => (interval ? signed(interval[1] - interval[0]) : ""))],
      interval,
    ];
  }

  /// Shows `{ functions, all, choice, old }`; `old` has the older profile's samples by function.
  show(view) {
    this.last = view;
    const { data } = this;
    const { functions, choice, old } = view;
    const { fits, problem } = matcher(choice.filter);
    let rows = [];
    functions.total.forEach((total, frame) => {
      const oldTotal = old ? old.functions.total[frame] : 0;
      if (total > 0 || oldTotal > 0) rows.push(this.row(frame, view));
    });
    const every = rows.length;
    if (fits) rows = rows.filter((row) => fits(fullName(data, row.frame)));
    const name = (row) => data.rank[row.frame];
    const by = { self: (row) => -row.self, total: (row) => -row.total, name, change: (row) => -Math.abs(row.change) };
    const key = by[choice.sort];
    rows.sort((a, b) => key(a) - key(b) || b.total - a.total || name(a) - name(b));
    const shown = rows.slice(0, this.limit);
    this.shown.textContent = problem ? `not a regular expression: ${problem}`
      : `${whole.format(shown.length)} of ${whole.format(every)} functions`;
    this.more.hidden = shown.length === rows.length;
    this.more.textContent = `Show all ${whole.format(rows.length)}`;
    const columns = this.columns(view);
    const body = element("tbody");
    body.append(...shown.map((row) => this.line(row, columns, choice)));
    this.table.replaceChildren(this.head(columns, choice), body);
  }

  row(frame, { functions, old, counted }) {
    const row = { frame, self: functions.self[frame], total: functions.total[frame] };
    if (old) {
      row.oldTotal = old.functions.total[frame];
      // What is shown besides the samples is of no function that is known, so it has no change.
      row.isBeside = this.data.besideFrames.includes(frame);
      row.change = row.isBeside ? 0 : changeOfShare(row.total, counted, row.oldTotal, old);
      row.interval = changeOf(this.data, frame);
    }
    return row;
  }

  head(columns, choice) {
    const row = element("tr");
    for (const [name, title] of [["name", "Function"], ...columns]) {
      const cell = element("th", { scope: "col" });
      if (name !== "name") cell.className = "number";
      if (name === choice.sort) cell.ariaSort = name === "name" ? "ascending" : "descending";
      const arrow = name === choice.sort ? (name === "name" ? " ▲" : " ▼") : "";
      cell.append(name ? element("button", { type: "button", textContent: title + arrow,
        onclick: () => this.sorted(name) }) : title);
      row.append(cell);
    }
    return element("thead", {}, row);
  }

  line(row, columns, choice) {
    const full = fullName(this.data, row.frame);
    const last = full.slice(full.lastIndexOf(lastSegment(this.data.names[row.frame])));
    // The last part of a path is what people look for, so the part before it is what is cut.
    const button = element("button", { type: "button", title: full, onclick: () => this.chosen(row.frame) },
      element("span", { className: "path", textContent: full.slice(0, full.length - last.length) }),
      element("span", { className: "last", textContent: last }));
    const line = element("tr", { className: row.frame === choice.func ? "selected" : "" },
      element("td", { className: "name" }, button));
    for (const [, , cellOf] of columns) {
      const { text, bar, isPale } = cellOf(row);
      const cell = element("td", { className: "number", textContent: text });
      if (bar !== undefined) {
        cell.classList.add("share");
        cell.style.backgroundSize = `${(bar * 100).toFixed(2)}% 3px`;
      }
      if (isPale) cell.classList.add("pale");
      line.append(cell);
    }
    return line;
  }
}

/// By how much the share of a function has changed. As in `diff`, shares are parts of the samples that are there, or of
/// the recorded hits: what was lost may be of any function.
const changeOfShare = (total, counted, oldTotal, old) =>
  total / Math.max(counted.samples, 1) - oldTotal / Math.max(old.samples, 1);

/// The row of the comparison for the total samples of a function: `[old, new, low, middle, high, is significant, every
/// hit was recorded, may be lost hits alone]`.
function changeOf(data, frame) {
  const at = data.old?.frames[frame]?.[1];
  return at === undefined || at === null ? null : data.old.rows[at];
}

/// Whether a change has no error: every hit was recorded, and none was lost.
const isExact = ([, , low, , high, , isRecorded]) => isRecorded && low === high;
/// Whether a change is more than chance, or is known exactly.
const isCertain = (change) => Boolean(change) && (change[5] || isExact(change));
const rangeOf = ([, , low, , high]) => `${points(low)} to ${points(high)}`;

/// What is known of a change, in words.
function verdictOf(data, change) {
  const [, , , , , isSignificant, isRecorded, isWithinLoss] = change;
  if (data.old.isDoubtful) return "not certain, because records of allocations or frees were lost";
  if (isExact(change)) return "exact, because every hit was recorded";
  if (isWithinLoss) return "may be the lost hits alone";
  if (isSignificant) return isRecorded ? "more than the lost hits can be" : "more than chance";
  return "may be chance";
}
