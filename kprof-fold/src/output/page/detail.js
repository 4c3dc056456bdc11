// The details of one function: its samples, its callers and callees, and the source lines and instructions that its own
// samples are at. In: the stacks and their counts. Out: elements of the page.

/// Samples at each source line of a function, where it is the innermost function that is shown: `[file, line, samples,
/// instructions]` in the order of the source, with the lines around them that the page has; instructions are `[address,
/// text, samples]` in the order of their addresses.
function places(data, choice, counts, func) {
  const lines = new Map();
  let known = 0;
  const lineOf = (file, line) => {
    const key = `${file} ${line}`;
    return lines.get(key) ?? lines.set(key, { file, line, samples: 0, instructions: new Map() }).get(key);
  };
  eachPath(data, choice, (stack, path) => {
    const number = data.stacks.instruction[stack];
    if (path[0] !== func || !counts[stack] || !number) return;
    const [address, text, chain] = data.tree.instructions[number - 1];
    const place = chain.find(([frame]) => data.same[frame] === func);
    if (!place) return;
    known += counts[stack];
    const found = lineOf(place[1], place[2]);
    found.samples += counts[stack];
    const instruction = found.instructions.get(address) ?? { address, text, samples: 0 };
    instruction.samples += counts[stack];
    found.instructions.set(address, instruction);
  });
  for (const { file, line } of [...lines.values()]) {
    for (const [number] of data.source[file] ?? []) if (Math.abs(number - line) <= 2) lineOf(file, number);
  }
  const sorted = [...lines.values()].sort((a, b) => a.file - b.file || a.line - b.line);
  const byAddress = (a, b) => (a.address.padStart(16, "0") < b.address.padStart(16, "0") ? -1 : 1);
  for (const one of sorted) {
    one.text = data.source[one.file]?.find(([number]) => number === one.line)?.[1] ?? "";
    one.instructions = [...one.instructions.values()].sort(byAddress);
  }
  return { lines: sorted, known };
}

/// The first source line of a function that is known from its samples; "" if there is none.
function firstPlace(data, func) {
  data.places ??= new Map();
  if (!data.places.size) {
    for (const [, , chain] of data.tree.instructions) {
      for (const [frame, file, line] of chain) {
        const known = data.places.get(data.same[frame]);
        if (!known || line < known[1]) data.places.set(data.same[frame], [file, line]);
      }
    }
  }
  const [file, line] = data.places.get(func) ?? [];
  return line ? `${data.tree.files[file]}:${line}` : "";
}

/// The functions directly around a function, with the samples in which they are: `[frame, samples]`, most first.
function around(data, choice, counts, func, makeTree) {
  const tree = makeTree(data, choice, func);
  const weights = weigh(tree, counts, []);
  const [top] = tree.children;
  if (top === undefined) return [];
  const found = [];
  for (let at = tree.first[top]; at < tree.first[top + 1]; at++) {
    const node = tree.children[at];
    if (weights.total[node]) found.push([tree.frame[node], weights.total[node]]);
  }
  return found.sort((a, b) => b[1] - a[1]);
}

/// The tables. `all` are the samples that shares are parts of; `chosen` is called with a function.
function showDetail(section, data, { choice, counted, functions, base: all }, chosen, setView) {
  const { func } = choice;
  section.replaceChildren();
  if (func === null) return;
  section.append(element("h2", { textContent: "Details" }));
  const [self, total] = [functions.self[func], functions.total[func]];
  section.append(element("p", { className: "code", textContent: fullName(data, func) }));
  const sum = (name, samples) => `${name} ${amountInText(samples)} (${percent(samples, all)})`;
  section.append(element("p", { textContent: `${sum("self", self)}, ${sum("total", total)}` }));
  if (data.besideFrames.includes(func)) return;
  const change = changeOf(data, func);
  if (change) {
    const [old, now, , middle, , , isRecorded] = change;
    const range = isExact(change) ? "" : `, ${rangeOf(change)}`;
    const text = `change of total in the whole recordings: ${points(middle)} points${range}`;
    const confidence = isRecorded || data.old.isDoubtful ? "" : ` (${percent(data.old.confidence, 1)})`;
    section.append(element("p", { textContent: `${text}: ${verdictOf(data, change)}${confidence}` }));
    if (unit.isWeight) {
      const ends = `from ${amountOf(old)} to ${amountOf(now)}`;
      section.append(element("p", { textContent: `${ends}: ${signed(now - old)} ${unit.name}` }));
    }
  }
  section.append(element("p", {}, element("button", { type: "button", textContent: "Callers and callees as a picture",
    onclick: () => setView("sandwich") })));
  const table = (title, head, rows) => {
    if (!rows.length) return;
    const made = element("table", {}, element("caption", { textContent: title }));
    made.append(element("thead", {}, element("tr", {}, ...head.map((text, at) =>
      element("th", { scope: "col", className: at < 2 ? "number" : "", textContent: text })))));
    made.append(element("tbody", {}, ...rows));
    section.append(made);
  };
  const cells = (samples, last) => element("tr", {},
    element("td", { className: "number", textContent: percent(samples, all) }),
    element("td", { className: "number", textContent: amount(samples) }), last);
  const code = (text) => element("td", { className: "code", textContent: text });
  const link = (frame) => element("td", { className: "name" }, nameButton(data, frame, chosen));
  const { counts } = counted;
  const functionsAround = (make) =>
    around(data, choice, counts, func, make).map(([frame, samples]) => cells(samples, link(frame)));
  table("Called by", ["Share", unit.name, "Caller"], functionsAround(callerTree));
  table("Calls", ["Share", unit.name, "Callee"], functionsAround(calleeTree));
  const found = places(data, choice, counts, func);
  const own = unit.isWeight ? "Self" : "Self time";
  const most = Math.max(...found.lines.map(({ samples }) => samples), 1);
  /// A row with its heat, and without numbers if it has no samples.
  const heated = (samples, text, className) => {
    const row = cells(samples, element("td", { className: `code ${className}`, textContent: text }));
    if (samples === 0) [row.cells[0], row.cells[1]].forEach((cell) => (cell.textContent = ""));
    row.cells[0].classList.add("heat");
    row.cells[0].style.setProperty("--heat", `${((samples / most) * 100).toFixed(0)}%`);
    return row;
  };
  const nameOf = (file) => data.tree.files[file].split("/").at(-1);
  table(`${own} by source line and instruction`, ["Share", unit.name, "Line"],
    found.lines.flatMap(({ file, line, samples, text, instructions }) => [
      heated(samples, `${text ? nameOf(file) : data.tree.files[file]}:${line}  ${text}`, samples ? "" : "pale"),
      ...instructions.map(({ address, text, samples }) => heated(samples, `${address}  ${text}`, "instruction"))]));
  if (found.known < self && data.tree.instructions.length) {
    section.append(element("p", { className: "hint",
      textContent: unit.isWeight ? `${amountOf(self - found.known)} of self have no known line`
        : `${whole.format(self - found.known)} self samples have no known line` }));
  }
}
