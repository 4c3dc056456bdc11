// The table of functions. In: self and total samples of each function, and what the user has sorted and filtered by.
// Out: rows. It shows a part of a long table, and says so.

/// Rows that are shown before the user asks for all.
const SHOWN_ROWS = 100;
/// Columns of the small curves over time.
const SPARK = 32;

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

  /// The columns: name, title, the contents of a cell, and whether these are a picture. Amounts have
  /// columns only with events, whose weights differ.
  columns({ base, old, widest }) {
    const share = (part) => ({ text: percent(part, base), title: amountOf(part) });
    const weight = (title, part) => (unit.isWeight ? [[null, title, (row) => ({ text: amount(part(row)) })]] : []);
    const bar = (row) => ({ bar: [row.self / Math.max(base, 1), row.total / Math.max(base, 1)] });
    const plain = [
      [null, "Share", bar, true],
      ["self", "Self", (row) => share(row.self)],
      ...weight(unit.name, (row) => row.self),
      ["total", "Total", (row) => share(row.total)],
      ...weight(unit.name, (row) => row.total),
    ];
    const time = [null, "Over time", (row) => ({ spark: row.frame }), true];
    if (!old) return [...plain, time];
    const pale = (text) => (row) => ({ text: text(row), isPale: !isCertain(row.interval) });
    return [
      ...plain,
      [null, "Before", (row) => ({ text: percent(row.oldTotal, old.all) })],
      ...weight(unit.name, (row) => row.oldTotal),
      ["change", unit.isWeight ? "Change in points" : "Change",
        pale((row) => (row.isBeside ? "" : points(row.change)))],
      ...(unit.isWeight ? [[null, `${unit.name} more (whole)`,
        pale(({ interval }) => (interval ? signed(interval[1] - interval[0]) : ""))]] : []),
      [null, "Interval", ({ interval }) => ({ interval, widest, isPale: !isCertain(interval),
        text: !interval ? "" : isExact(interval) ? "exact" : rangeOf(interval) })],
      time,
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
    const ends = shown.flatMap(({ interval }) => (interval ? [Math.abs(interval[2]), Math.abs(interval[4])] : []));
    const columns = this.columns({ ...view, widest: Math.max(1e-4, ...ends) });
    const body = element("tbody");
    body.append(...shown.map((row) => this.line(row, columns, choice)));
    const focused = document.activeElement?.dataset.key;
    this.table.replaceChildren(this.head(columns, choice), body);
    if (focused) this.table.querySelector(`[data-key="${focused}"]`)?.focus({ preventScroll: true });
    // The small curves are drawn when everything else is.
    clearTimeout(this.later);
    this.later = setTimeout(() => this.sparks(shown.map((row) => row.frame), view), 100);
  }

  /// Draws for each function how its total is distributed over the chosen time.
  sparks(frames, { calls, choice }) {
    const sums = overTime(this.data, calls, choice, frames, SPARK);
    this.table.querySelectorAll(".spark").forEach((cell, row) => {
      const bins = sums.subarray(row * SPARK, (row + 1) * SPARK);
      const most = bins.reduce((most, one) => Math.max(most, one), 1e-9);
      const path = [...bins].map((sum) => `V${(10 - (sum / most) * 10).toFixed(1)}h1`).join("");
      cell.replaceChildren(drawing(SPARK, 10, "none", ["path", { d: `M0 10${path}V10z` }]));
    });
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
    for (const [name, title, , isPicture] of [["name", "Function"], ...columns]) {
      const cell = element("th", { scope: "col" });
      if (name !== "name" && !isPicture) cell.className = "number";
      if (name === choice.sort) cell.ariaSort = name === "name" ? "ascending" : "descending";
      const arrow = name === choice.sort ? (name === "name" ? " ▲" : " ▼") : "";
      const button = name && element("button", { type: "button", textContent: title + arrow,
        onclick: () => this.sorted(name) });
      if (button) button.dataset.key = `sort ${name}`;
      cell.append(button || title);
      row.append(cell);
    }
    return element("thead", {}, row);
  }

  line(row, columns, choice) {
    const button = nameButton(this.data, row.frame, this.chosen);
    button.dataset.key = row.frame;
    const line = element("tr", { className: row.frame === choice.func ? "selected" : "" },
      element("td", { className: "name" }, button));
    for (const [, , cellOf] of columns) {
      const { text = "", title = "", bar, spark, interval, widest, isPale } = cellOf(row);
      const cell = element("td", { className: "number", textContent: text, title });
      if (bar) {
        cell.className = "share";
        cell.style.backgroundSize = bar.map((part) => `${(part * 100).toFixed(2)}% 60%`).join();
      }
      if (spark !== undefined) cell.className = "spark";
      if (interval && !isExact(interval)) {
        cell.title = text;
        cell.replaceChildren(element("span", { className: "unseen", textContent: text }), dotOf(interval, widest));
      }
      if (isPale) cell.classList.add("pale");
      line.append(cell);
    }
    return line;
  }
}

/// A small drawing of lines and dots.
function drawing(width, height, ratio, ...shapes) {
  const made = (name, values) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", name);
    Object.entries(values).forEach(([key, value]) => one.setAttribute(key, value));
    return one;
  };
  const box = made("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: ratio, "aria-hidden": true });
  box.append(...shapes.map(([name, values]) => made(name, values)));
  return box;
}

/// A change as a dot with its interval around the line of no change. `widest` is at the edges.
function dotOf([, , low, middle, high], widest) {
  const x = (change) => 50 + Math.max(-48, Math.min(48, (change / widest) * 48));
  return drawing(100, 12, "none", ["path", { d: "M50 0V12", class: "zero" }],
    ["path", { d: `M${x(low)} 6H${x(high)}` }], ["path", { d: `M${x(middle) - 2} 2V10h4V2z`, class: "dot" }]);
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
