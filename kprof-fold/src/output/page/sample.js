// One sample: when, where, and its stack. In: its number. Out: elements of the page, with steps to the samples before
// and after it in the same lane.

/// The functions of a sample as they are shown, outermost first.
const stackOf = (data, calls, sample) => pathTo(calls, calls.leaf[data.samples.stack[sample]]);

/// `chosen` is called with a function, `step` with -1 or 1.
function sampleText(data, calls, sample, chosen, step) {
  const { time, cpu, task, stack } = data.samples;
  const where = `CPU ${data.cpus[cpu[sample]]}, task ${data.tasks[task[sample]] || "[no name]"}`;
  const what = `${KINDS[data.stacks.kind[stack[sample]]]}${data.weights ? `, ${amountOf(data.weights[sample])}` : ""}`;
  const button = (textContent, id, by) =>
    element("button", { type: "button", textContent, id, onclick: () => step(by) });
  const place = data.tree.instructions[data.stacks.instruction[stack[sample]] - 1];
  const frames = stackOf(data, calls, sample).reverse()
    .map((frame) => element("li", {}, nameButton(data, frame, chosen)));
  return element("div", { id: "sample" },
    element("h2", { textContent: `${data.weights ? "Hit" : "Sample"} at ${seconds(time[sample])} s` }),
    element("p", {}, `${where}, ${what} `, button("Previous", "previous", -1), " ", button("Next", "next", 1)),
    element("p", { className: "code", textContent: place ? `${placeOf(data, place)}  ${place[1]}` : "" }),
    element("ol", { className: "stack" }, ...frames));
}

/// The source line of an instruction.
const placeOf = (data, [, , [[, file, line]]]) => `${data.tree.files[file]}:${line}`;

/// A function as a button: its path dim, its last segment strong, its full name in the tooltip.
function nameButton(data, frame, chosen) {
  const { path, last } = partsOf(data.names[frame]);
  const title = fullName(data, frame);
  return element("button", { type: "button", className: "function", title, onclick: () => chosen(frame) },
    element("span", { className: "path", textContent: path }),
    element("span", { className: "last", textContent: last + title.slice(data.names[frame].length) }));
}
