// Saves what is chosen: folded stacks as kprof-fold prints them, or the picture as SVG. In: the call tree or the flame
// graph. Out: a file that the browser saves.

/// The folded stacks of a call tree, sorted by name, without frames of no samples.
function foldedText(data, tree, weights) {
  const lines = [];
  for (let node = 1; node < tree.length; node++) {
    if (weights.self[node] > 0) {
      const names = pathTo(tree, node).map((frame) => fullName(data, frame));
      lines.push(`${names.join(";")} ${weights.self[node]}\n`);
    }
  }
  return lines.sort().join("");
}

/// The boxes of the flame graph as an SVG that needs nothing else.
function svgText(flame, title, subtitle) {
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
  const escape = (text) => text.replace(/[&<>"]/g, (one) => entities[one]);
  const [width, top] = [flame.width, 44];
  const letter = 7.23;
  const back = getComputedStyle(document.documentElement).getPropertyValue("--back");
  const ink = getComputedStyle(document.body).color;
  const boxes = flame.boxes.map((box) => {
    const { path, last } = label(flame.style.parts(box), Math.floor((box.width - 6) / letter));
    const [x, y] = [box.x.toFixed(1), box.y + top];
    const size = `width="${Math.max(box.width - 0.6, 0.3).toFixed(1)}" height="${ROW - 1}"`;
    const place = `x="${(box.x + 3).toFixed(1)}" y="${y + 13}"`;
    return `<g><title>${escape(flame.style.describe(box))}</title>` +
      `<rect x="${x}" y="${y}" ${size} fill="${flame.style.color(box)}"/>` +
      `<text ${place}>${escape(path)}<tspan font-weight="600">${escape(last)}</tspan></text></g>\n`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${flame.height + top}" ` +
    `font-family="ui-monospace, monospace" font-size="12" fill="${ink}">\n` +
    `<rect width="100%" height="100%" fill="${back}"/>\n<text x="3" y="16" font-size="15">${escape(title)}</text>\n` +
    `<text x="3" y="34">${escape(subtitle)}</text>\n${boxes.join("")}</svg>\n`;
}

/// The chosen samples, one in a line: seconds, CPU, task, kind, weight, and the frames from the outermost on.
function samplesText(data, tree, choice) {
  const { time, cpu, task, stack } = data.samples;
  const lines = ["seconds\tCPU\ttask\tkind\tweight\tstack\n"];
  eachChosen(data, choice, (at) => {
    const names = pathTo(tree, tree.leaf[stack[at]]).map((frame) => fullName(data, frame)).join(";");
    const place = [seconds(time[at]), data.cpus[cpu[at]], data.tasks[task[at]], KINDS[data.stacks.kind[stack[at]]]];
    lines.push(`${[...place, data.weights?.[at] ?? 1, names].join("\t")}\n`);
  });
  return lines.join("");
}

function save(name, type, text) {
  const link = element("a", { download: name, href: URL.createObjectURL(new Blob([text], { type })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
