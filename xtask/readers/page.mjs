// Opens the pages of `kprof-fold html` in a browser, uses them with pointer and keyboard, and compares their numbers
// with what `folded`, `report` and `diff` print.
//
// In: the folder with the pages and the other outputs (`xtask/src/test/page.rs` makes them), and a browser's path. Out:
// a line per check: `ok NAME`, `FAILED NAME: WHY`.

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { check, opened, same, started, until } from "./browser.mjs";
import { box, click, middle, mouse, press, text } from "./pointer.mjs";

const [folder, browser] = process.argv.slice(2);
const file = (name) => join(folder, name);
const read = (name) => readFileSync(file(name), "utf8");
const address = (name, fragment = "") => pathToFileURL(file(name)) + fragment;
const ranges = JSON.parse(read("ranges.json"));

const tab = started(browser, folder, "1500,1400");
const isReady = "Boolean(window.kprof?.now.millis)";
/// Opens a page and waits until it has drawn itself.
async function ready(name, fragment) {
  const page = await opened(tab, address(name, fragment));
  await until(page, isReady);
  return page;
}

/// Lines of a text, sorted.
const sorted = (text) => text.split("\n").filter((line) => line).sort();
/// The rows of the first table that `report` prints: `{ name: [self, total] }`.
function reported(text) {
  const rows = {};
  for (const line of text.split("By total time")[0].split("\n")) {
    const row = /^ *[\d.]+ +[\d.]+ +(\d+) +(\d+) {2}(.*)$/.exec(line);
    if (row) rows[row[3]] = [Number(row[1]), Number(row[2])];
  }
  return rows;
}
/// The page's table of functions in the same form, from its numbers.
const FUNCTIONS = `(() => {
  const { data, now } = kprof, rows = {};
  now.functions.total.forEach((total, frame) => {
    const name = data.names[frame] + (data.traits[frame] & 1 ? " (inlined)" : "");
    if (total) rows[name] = [now.functions.self[frame], total];
  });
  return rows;
})()`;
const byName = (rows) => Object.entries(rows).sort(([a], [b]) => (a < b ? -1 : 1));

await check(tab, "the page asks for nothing but itself and has no error", async () => {
  const page = await opened(tab, "about:blank");
  await page.send("Network.enable");
  const before = tab.said.length;
  const asked = [];
  tab.listen((message) => {
    if (message.method === "Network.requestWillBeSent") asked.push(message.params.request.url);
  });
  await page.send("Page.navigate", { url: address("page.html") });
  await until(page, isReady);
  same("requests", asked.filter((url) => !url.startsWith("blob:")), [address("page.html")]);
  same("messages on the console", tab.said.slice(before), []);
  same("title", await page.value("document.title"), 'a <b> & "c"');
  same("verdict", await text(page, "balance"), "balanced: every tick is accounted for");
  same("failure", await page.value("document.getElementById('failure').hidden"), true);
});

await check(tab, "every range has the numbers of folded and report", async () => {
  const page = await ready("page.html");
  const all = new Set(await page.value("kprof.choice.kinds.map((_, kind) => kind)"));
  const variants = {
    all: "inline: 'all'", none: "inline: 'none'",
    user: "inline: 'all', kinds: kprof.choice.kinds.map(() => true)",
    cpu: "inline: 'all', hiddenCpus: new Set(kprof.data.cpus.filter((cpu) => cpu !== 1))",
    task: `inline: 'all',
      hiddenTasks: new Set(kprof.data.tasks.keys().filter((at) => kprof.data.tasks[at] !== 'copy'))`,
  };
  same("kinds", all.size, 5);
  for (const [number, [from, to]] of ranges.entries()) {
    for (const [name, choice] of Object.entries(variants).filter(([name]) => existsSync(file(`${name}-${number}`)))) {
      const is = await page.value(`(document.getElementById("reset").click(),
        kprof.change({ from: ${from}, to: ${to}, ${choice} }), kprof.folded())`);
      same(`range ${number}, ${name}`, sorted(is), sorted(read(`${name}-${number}`)));
    }
    const is = await page.value(`(document.getElementById("reset").click(),
      kprof.change({ from: ${from}, to: ${to} }), ${FUNCTIONS})`);
    same(`range ${number}, report`, byName(is), byName(reported(read(`report-${number}`))));
  }
});

await check(tab, "a drag in a lane selects its range, and a double click the whole recording", async () => {
  const page = await ready("page.html");
  const [x, y] = await middle(page, "#timeline");
  const end = await page.value("kprof.data.end");
  const lane = await page.value("document.getElementById('timeline').getBoundingClientRect().left");
  const micros = await page.value(`((x) => Math.round((x - ${lane} - 64) / (kprof.timeline.width - 64) * ${end}))`
    + `(${x}) + 0`);
  await mouse(page, "mousePressed", [x, y]);
  await mouse(page, "mouseMoved", [x + 100, y]);
  await mouse(page, "mouseMoved", [x + 200, y]);
  await mouse(page, "mouseReleased", [x + 200, y]);
  const [from, to] = await page.value("[kprof.choice.from, kprof.choice.to]");
  same("start of the range", Math.abs(from - micros) <= end / 500, true);
  same("end of the range", to > from, true);
  const samples = await page.value("kprof.now.all");
  const counted = await page.value(`[...kprof.data.samples.time].filter((at, number) => ${from} <= at && at < ${to}
    && kprof.choice.kinds[kprof.data.stacks.kind[kprof.data.samples.stack[number]]]).length + kprof.now.counted.lost`);
  same("samples in the range", samples, counted);
  await mouse(page, "mousePressed", [x, y], { clickCount: 2 });
  await mouse(page, "mouseReleased", [x, y], { clickCount: 2 });
  same("range after a double click", await page.value("kprof.choice.from"), null);
});

await check(tab, "the lanes show what each CPU did at each time, also at the ticks that have no sample", async () => {
  const page = await ready("page.html");
  const columns = 60;
  const [end, flat, sums] = await page.value(`(({ timeline: { lanes }, data }) => [data.end,
    [...lanes.parts(0, data.end, ${columns}, 0, 3).parts], [...kprof.ticks()]])(kprof)`);
  // One more number is for the selected function.
  const size = 7;
  const truth = flat.map(() => 0);
  const ticks = JSON.parse(read("new.ticks.json"));
  const placeOf = (cpu, micros, kind) => ((cpu - 1) * columns + Math.floor((micros / end) * columns)) * size + kind;
  for (const [cpu, micros, kind] of ticks) truth[placeOf(cpu, micros, kind)]++;
  for (const kind of [3, 4, 5]) {
    const must = truth.filter((_, at) => at % size === kind);
    const is = flat.filter((_, at) => at % size === kind);
    // Of the ticks in and after a batch only the sums are known, so they are spread evenly.
    is.forEach((ticks, at) => same(`kind ${kind}, CPU and column ${at}: ${ticks} of ${must[at]}`,
      Math.abs(ticks - must[at]) <= 40, true));
    same(`all ticks of kind ${kind}`, Math.round(sums[kind]), must.reduce((sum, one) => sum + one, 0));
    if (kind > 3) same(`a long time of kind ${kind}`, Math.max(...must) > 50, true);
  }
  const [share, pixels] = await page.value(`(() => {
    const { lanes, image, columns } = kprof.timeline, { parts } = lanes.parts(0, kprof.data.end, columns, 0, 1);
    const shareOf = (column) => parts[column * ${size} + 4] / sumOf(column);
    const sumOf = (column) =>
      parts.subarray(column * ${size}, column * ${size} + 6).reduce((sum, one) => sum + one, 1e-9);
    const most = [...Array(columns).keys()].sort((a, b) => shareOf(b) - shareOf(a))[0];
    const context = document.createElement("canvas").getContext("2d");
    context.fillStyle = kprof.palette().kinds[4];
    context.fillRect(0, 0, 1, 1);
    const color = [...context.getImageData(0, 0, 1, 1).data].join();
    const column = image.getContext("2d").getImageData(most, 0, 1, 22).data;
    return [shareOf(most), [...Array(22).keys()].filter((y) => column.slice(4 * y, 4 * y + 4).join() === color).length];
  })()`);
  same("a column with many idle ticks", share > 0.5, true);
  same(`${pixels} of 19 pixels for a share of ${share}`, Math.abs(pixels - share * 19) <= 1, true);
});

await check(tab, "the page of a part of the time has nothing outside of it", async () => {
  const page = await ready("part.html");
  const ends = await page.value(`(({ samples, gaps, filtered, end }) => [Math.min(...samples.time), end,
    ...[gaps, filtered].map((list) => [Math.min(...list.map((one) => one[1])), Math.max(...list.map((one) => one[2]))]),
  ])(kprof.data)`);
  const isInside = (at) => at >= 2_500_000 && at <= 3_000_000;
  same("ends of samples, losses and filtered ticks", ends.flat().every(isInside), true);
});

await check(tab, "a second boot follows the first", async () => {
  const page = await ready("boots.html");
  const [samples, old] = [await page.value("kprof.data.samples.time.length"),
    await (await ready("compared.html")).value("kprof.data.old.samples")];
  const again = await ready("boots.html");
  const marks = await again.value("kprof.data.marks");
  const begin = marks.find(([, name]) => name.startsWith("boot "))[0];
  const times = await again.value("[...kprof.data.samples.time]");
  same("samples before the second boot", times.filter((time) => time < begin).length, old);
  same("samples", times.length, samples);
  same("marks", marks.map(([, name]) => name).sort(), ["boot 78", "copying", "copying", "done", "done", "start", "start"]);
  const starts = marks.filter(([, name]) => name === "start").map(([at]) => at).sort((a, b) => a - b);
  same("the same mark in each boot", starts[0] < begin && starts[1] > begin, true);
});

await check(tab, "boxes lie above their callers, as wide as their samples", async () => {
  const page = await ready("page.html", "#inline=all");
  const wrong = await page.value(`(() => {
    const { boxes, width, parts: [{ tree, weights }] } = kprof.flame;
    const places = new Map(boxes.map((box) => [box.node, box])), ends = new Map();
    return boxes.filter((box) => box.node).filter((box) => {
      const below = places.get(tree.parent[box.node]);
      const start = ends.get(below.node) ?? below.x;
      const isSound = box.x >= below.x - 0.01 && box.x + box.width <= below.x + below.width + 0.01
        && Math.abs(box.width - weights.total[box.node] / weights.total[0] * width) < 0.01
        && boxes.every((other) => other === box || other.row !== box.row
          || other.x >= box.x + box.width - 0.01 || other.x + other.width <= box.x + 0.01);
      return !isSound || box.row !== below.row + 1;
    }).map((box) => kprof.data.names[tree.frame[box.node]]);
  })()`);
  same("boxes elsewhere", wrong, []);
});

await check(tab, "frames have the color of their kind, as in the legend", async () => {
  const page = await ready("page.html", "#inline=all&kinds=11111");
  const colors = await page.value(`(() => {
    kprof.change({ view: "flame" });
    const hue = (text) => Number(/hsl\\((\\d+) /.exec(text)[1]), { flame, data } = kprof;
    return flame.boxes.filter((box) => box.node).map((box) => {
      const frame = box.part.tree.frame[box.node];
      return [data.names[frame] + (data.traits[frame] & 1 ? " (inlined)" : ""), hue(flame.style.color(box))];
    });
  })()`);
  const legend = Object.fromEntries(await page.value(`[...document.querySelectorAll("#legend li")].map((item) =>
    [item.textContent, item.querySelector(".swatch").style.background])`));
  same("kinds of the legend", Object.keys(legend).sort(),
    ["inlined", "interrupt", "kernel", "lost", "marker", "syscall", "user"]);
  const hues = { inlined: 46, interrupt: 275, kernel: 28, lost: 0, syscall: 190, user: 110 };
  const kindOf = (name) => /^\[interrupt/.test(name) ? "interrupt" : /^\[syscall/.test(name) ? "syscall"
    : /^\[lost/.test(name) ? "lost" : / \(inlined\)$/.test(name) ? "inlined" : /^image::act_\d+$/.test(name) ? "kernel"
    : null;
  const seen = new Set();
  for (const [name, hue] of colors) {
    const kind = kindOf(name);
    if (kind) same(`color of ${name}`, hue, hues[kind]);
    seen.add(kind);
  }
  for (const kind of ["interrupt", "syscall", "lost", "inlined", "kernel"]) same(`a frame: ${kind}`, seen.has(kind), true);
});

await check(tab, "a click zooms, its details are right, Escape zooms out", async () => {
  const page = await ready("page.html", "#inline=all");
  const found = await box(page, "(name) => name.includes('act_3')");
  await click(page, found.at);
  const zoom = await page.value("kprof.choice.zoom.map((frame) => kprof.data.names[frame])");
  same("end of the zoomed path", zoom.at(-1), found.name);
  same("width of the zoomed box", await page.value(
    `kprof.flame.boxes.find((box) => box.node === ${found.node}).width === kprof.flame.width`), true);
  const detail = await text(page, "detail");
  const rows = reported(read("report-9"));
  const [self, total] = await page.value(
    `[kprof.now.functions.self[kprof.choice.func], kprof.now.functions.total[kprof.choice.func]]`);
  same("a function of the report", found.name in rows, true);
  for (const part of [`self ${self}`, `total ${total.toLocaleString("en")}`]) {
    same(`details with ${part}`, detail.includes(part), true);
  }
  same("source lines in the details", /image\.rs:\d+/.test(detail), true);
  const sum = await page.value(`[...document.querySelectorAll("#detail caption")]
    .find((one) => one.textContent.includes("source line")).parentElement.querySelectorAll("tbody tr").length`);
  same("rows of source lines", sum > 0, true);
  for (let left = zoom.length; left > 0; left--) await press(page, "Escape");
  same("zoom after Escape", await page.value("kprof.choice.zoom"), []);
  await page.value("kprof.change({ from: 1000000, to: 2000000 })");
  await press(page, "Escape");
  same("range after Escape", await page.value("kprof.choice.from"), null);
});

await check(tab, "the key / searches, by text and by regular expression, with the right share", async () => {
  const page = await ready("page.html", "#inline=all");
  await press(page, "/", "/");
  same("focus", await page.value("document.activeElement.id"), "search");
  await page.send("Input.insertText", { text: "act_20" });
  const [shown, all] = [await text(page, "found"), await page.value("kprof.now.all")];
  const lines = sorted(await page.value("kprof.folded()"));
  const count = (test) => lines.filter((line) => test(line.slice(0, line.lastIndexOf(" "))))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(" "))), 0);
  const must = (samples) => `${samples.toLocaleString("en")} samples, ${((samples * 100) / all).toFixed(2)} %`;
  same("text", shown, must(count((stack) => stack.includes("act_20"))));
  await page.value(`kprof.change({ search: "/act_(3|20)$/" })`);
  const fits = (stack) => stack.split(";").some((frame) => /act_(3|20)$/.test(frame));
  same("regular expression", await text(page, "found"), must(count(fits)));
  await page.value(`kprof.change({ search: "/(/" })`);
  same("a wrong expression", (await text(page, "found")).startsWith("not a regular expression"), true);
});

await check(tab, "the arrow keys walk the flame graph and Enter zooms", async () => {
  const page = await ready("page.html");
  await page.value("document.getElementById('flame').focus()");
  const names = [];
  for (const key of ["ArrowUp", "ArrowUp", "ArrowUp", "ArrowDown", "ArrowRight", "ArrowLeft"]) {
    await press(page, key);
    names.push(await text(page, "hover"));
  }
  const places = async () => page.value(`kprof.flame.boxes.find((box) => kprof.flame.isSelected(box)).x`);
  const before = await places();
  await press(page, "ArrowRight");
  same("to the right", await places() > before, true);
  await press(page, "ArrowLeft");
  same("after down, the caller again", names[3], names[1]);
  same("after right and left, the same", names[5], names[3]);
  same("each with its samples", names.every((name) => / samples, [\d.]+ %/.test(name)), true);
  await press(page, "Enter");
  same("zoomed", await page.value("kprof.choice.zoom.length > 0"), true);
});

await check(tab, "inverted and sandwich views have the samples of each function", async () => {
  const page = await ready("page.html");
  const wrong = await page.value(`(() => {
    kprof.change({ view: "inverted" });
    const { tree, weights } = kprof.flame.parts[0];
    const wrong = [];
    for (let at = tree.first[0]; at < tree.first[1]; at++) {
      const node = tree.children[at];
      if (node !== tree.lost && weights.total[node] !== kprof.now.functions.self[tree.frame[node]]) wrong.push(node);
    }
    for (let func = 0; func < kprof.data.lostFrame; func++) {
      const total = kprof.now.functions.total[func];
      if (!total) continue;
      kprof.change({ view: "sandwich", func });
      for (const { tree, weights } of kprof.flame.parts) {
        if (weights.total[0] !== total || tree.first[1] !== 1) wrong.push(kprof.data.names[func]);
      }
      // The part above begins with the outermost call, so a recursive function is not its own caller.
      const [{ tree }] = kprof.flame.parts;
      if (tree.frame.subarray(0, tree.length).filter((frame) => frame === func).length !== 1) wrong.push(func);
    }
    return wrong;
  })()`);
  same("functions whose numbers differ", wrong, []);
  // The callers and callees of each function, counted from the folded stacks: from its outermost call on.
  const found = await page.value(`(() => {
    kprof.change({ view: "flame", func: null, inline: "all" });
    const { data, now } = kprof, folded = kprof.folded(), all = {};
    const name = (frame) => data.names[frame] + (data.traits[frame] & 1 ? " (inlined)" : "");
    const beside = ({ tree, weights }) => {
      const top = tree.children[tree.first[0]];
      return [...tree.children.slice(tree.first[top], tree.first[top + 1])]
        .map((node) => [name(tree.frame[node]), weights.total[node]]).filter(([, samples]) => samples).sort();
    };
    for (let func = 0; func < data.lostFrame; func++) {
      if (!now.functions.total[func]) continue;
      kprof.change({ view: "sandwich", func });
      const rows = (title) => [...document.querySelectorAll("#detail caption")].filter((one) => one.textContent === title)
        .flatMap((one) => [...one.parentElement.querySelectorAll("tbody tr")])
        .map(({ children: [, samples, name] }) =>
          [name.querySelector("button").title, Number(samples.textContent.replaceAll(",", ""))]).sort();
      all[name(func)] = [...kprof.flame.parts.map(beside), rows("Called by"), rows("Calls")];
    }
    return [folded, all];
  })()`);
  const [folded, all] = found;
  const must = Object.fromEntries(Object.keys(all).map((name) => [name, [{}, {}]]));
  for (const line of sorted(folded)) {
    const frames = line.slice(0, line.lastIndexOf(" ")).split(";");
    const samples = Number(line.slice(line.lastIndexOf(" ")));
    for (const name of new Set(frames)) {
      const at = frames.indexOf(name);
      const [callers, callees] = must[name] ?? [{}, {}];
      if (at > 0) callers[frames[at - 1]] = (callers[frames[at - 1]] ?? 0) + samples;
      if (at + 1 < frames.length) callees[frames[at + 1]] = (callees[frames[at + 1]] ?? 0) + samples;
    }
  }
  for (const [name, [callers, callees, calledBy, calls]] of Object.entries(all)) {
    same(`callers of ${name}`, callers, Object.entries(must[name][0]).sort());
    same(`callees of ${name}`, callees, Object.entries(must[name][1]).sort());
    same(`callers of ${name}, and no row for them`, callers.length > 0 && !calledBy.length, false);
    const isIn = (list) => ([one, samples]) => list.some(([other, number]) => one === other && number === samples);
    same(`callers of ${name} in the table`, calledBy.filter((row) => !isIn(callers)(row)), []);
    same(`callees of ${name} in the table`, calls.filter((row) => !isIn(callees)(row)), []);
  }
});

await check(tab, "the table sorts, filters and says what it leaves out", async () => {
  const page = await ready("page.html", "#inline=all");
  const column = (at) => page.value(`[...document.querySelectorAll("#functions tbody tr")]
    .map((row) => row.children[${at}].textContent)`);
  const titles = () => page.value(`[...document.querySelectorAll("#functions tbody button")].map((one) => one.title)`);
  const numbers = (texts) => texts.map((text) => Number.parseFloat(text));
  const self = numbers(await column(2));
  same("by self", self, self.toSorted((a, b) => b - a));
  await click(page, "#functions th:nth-child(4) button");
  const total = numbers(await column(3));
  same("by total", total, total.toSorted((a, b) => b - a));
  const ordered = await page.value("document.querySelector('#functions [aria-sort]').textContent.slice(0, 5)");
  same("aria-sort", ordered, "Total");
  await click(page, "#functions th:first-child button");
  const names = await titles();
  same("by name", names, names.toSorted());
  const [shown, every] = /^(\d+) of (\d+) /.exec(await text(page, "shown")).slice(1).map(Number);
  same("rows", names.length, shown);
  same("functions", every, await page.value("kprof.now.functions.total.filter((total) => total > 0).length"));
  if (every > shown) {
    await click(page, "#more");
    same("all rows", (await column(0)).length, every);
  }
  await page.value(`kprof.change({ filter: "/^image::act_1\\\\d$/" })`);
  same("filtered", (await titles()).every((name) => /^image::act_1\d$/.test(name)), true);
});

await check(tab, "CPUs, tasks and kinds are switched by their boxes", async () => {
  const page = await ready("page.html");
  await page.value("document.querySelectorAll('.menu').forEach((menu) => (menu.open = true))");
  const before = await page.value("kprof.now.counted.samples");
  const ofCpu = await page.value("kprof.now.counted.cpus[0]");
  await until(page, "document.querySelectorAll('#cpus input').length === 3");
  await page.value("document.querySelector('.menu:has(#tasks)').open = false");
  await click(page, "#cpus input");
  same("without the first CPU", await page.value("kprof.now.counted.samples"), before - ofCpu);
  await click(page, "#kinds label:nth-of-type(2) input");
  same("without interrupts off", await page.value("kprof.choice.kinds[1]"), false);
  const kinds = await page.value(`[...kprof.now.counted.counts].reduce((found, samples, stack) =>
    (samples && found.add(kprof.data.stacks.kind[stack]), found), new Set()).has(1)`);
  same("samples with interrupts off", kinds, false);
  await click(page, "#reset");
  same("after reset", await page.value("kprof.now.counted.samples"), before);
});

await check(tab, "a fragment restores the view, and a bad one does no harm", async () => {
  const page = await ready("page.html");
  await page.value(`kprof.change({ from: 1000000, to: 3000000, view: "icicle", inline: "none", search: "act_2",
    hiddenCpus: new Set([2]), sort: "total", func: kprof.data.byName.get("image::act_3") })`);
  const seen = "[kprof.folded(), kprof.choice.view, kprof.choice.search, kprof.choice.sort, kprof.choice.func]";
  const before = await page.value(seen);
  await until(page, "location.hash.includes('icicle')");
  const again = await ready("page.html", await page.value("location.hash"));
  same("view", await again.value(seen), before);
  const bad = "#time=5-1&kinds=9&hiddenCpus=77.x&zoom=x&zoom=y&func=none&sight=5-1&sample=7-7"
    + "&hiddenTask=x&view=none&sort=__proto__&search=%00";
  const harmless = await ready("page.html", bad);
  same("samples", await harmless.value("kprof.now.all"), await (await ready("page.html")).value("kprof.now.all"));
});

await check(tab, "folded stacks and SVG are saved", async () => {
  const page = await ready("page.html", "#inline=all");
  await page.send("Browser.setDownloadBehavior", { behavior: "allow", downloadPath: folder });
  await click(page, "#saves summary");
  for (const name of ["folded", "svg", "samples"]) await click(page, `#${name}`);
  const end = Date.now() + 60_000;
  while (!["profile.folded", "flamegraph.svg", "samples.tsv"].every((name) => existsSync(file(name)))) {
    if (Date.now() > end) throw new Error("nothing was saved");
    await new Promise((done) => setTimeout(done, 50));
  }
  same("stacks", read("profile.folded"), await page.value("kprof.folded()"));
  const [head, ...samples] = read("samples.tsv").trim().split("\n").map((line) => line.split("\t"));
  same("columns of the samples", head.join(), "seconds,CPU,task,kind,weight,stack");
  const counts = new Map();
  for (const line of samples) counts.set(line[5], (counts.get(line[5]) ?? 0) + Number(line[4]));
  const folded = [...counts].map(([stack, count]) => `${stack} ${count}`).sort();
  same("stacks of the samples", folded, sorted(await page.value("kprof.folded()")).filter((line) => line[1] !== "l"));
  const pictured = await page.value("kprof.flame.boxes.length");
  const svg = await opened(tab, address("flamegraph.svg"));
  await until(svg, "document.readyState === 'complete'");
  const boxes = await svg.value("document.querySelectorAll('rect').length - 1");
  same("boxes of the SVG", boxes, pictured);
  same("titles of the SVG", boxes, await svg.value("document.querySelectorAll('g > title').length"));
  same("a name with angle brackets", await svg.value("document.documentElement.textContent.includes('<')"), true);
});

await check(tab, "a comparison has the changes of diff, and only those beyond chance in full color", async () => {
  const page = await ready("compared.html", "#sort=change");
  const diff = JSON.parse(read("diff.json"));
  const rows = diff.rows.filter((row) => row.kind === "total");
  const is = await page.value(`kprof.data.names.map((name, frame) => [
    name + (kprof.data.traits[frame] & 1 ? " (inlined)" : ""), kprof.data.old.frames[frame]?.[1] ?? null])
    .filter(([, at]) => at !== null).map(([name, at]) => [name, kprof.data.old.rows[at]])`);
  const found = new Map(is);
  same("functions", found.size, rows.length);
  for (const row of rows) {
    const [old, now, low, middle, high, isSignificant] = found.get(row.name);
    same(`samples of ${row.name}`, [old, now], [row.old_samples, row.new_samples]);
    same(`significance of ${row.name}`, isSignificant, row.significant);
    for (const [is, must] of [[low, row.change_low], [middle, row.change], [high, row.change_high]]) {
      if (Math.abs(is - must) > 1e-9) throw new Error(`interval of ${row.name}: ${is}, expected ${must}`);
    }
  }
  const first = await page.value("document.querySelector('#functions tbody tr td:first-child').textContent");
  same("a significant change", found.get(first)[5], true);
  const colors = await page.value(`kprof.flame.boxes.filter((box) => box.node).map((box) => [
    kprof.data.old.rows[kprof.data.old.frames[box.part.tree.frame[box.node]]?.[1]]?.[5] ?? false,
    Number(/ (\\d+)%/.exec(kprof.flame.style.color(box))[1])])`);
  same("full colors that may be chance", colors.filter(([is, saturation]) => !is && saturation > 30).length, 0);
  same("a full color", colors.some(([is, saturation]) => is && saturation > 30), true);
  const hues = await page.value(`kprof.flame.boxes.filter((box) => box.node).map((box) => {
    const row = kprof.data.old.rows[kprof.data.old.frames[box.part.tree.frame[box.node]]?.[1]];
    const { weights, tree } = box.part, { now } = kprof;
    const share = weights.total[box.node] / now.counted.samples - now.old.weights.total[box.node] / now.old.samples;
    return [row?.[5] ?? false, share, Number(/hsl\\((\\d+) /.exec(kprof.flame.style.color(box))[1])];
  })`);
  const wrong = hues.filter(([is, share, hue]) => is && Math.abs(share) > 0.01 && hue !== (share > 0 ? 5 : 215));
  same("colors of the wrong direction", wrong, []);
  same("both directions", new Set(hues.filter(([is]) => is).map(([, , hue]) => hue)).size >= 2, true);
});

await check(tab, "everything has a name for a screen reader, in light and dark", async () => {
  const page = await ready("page.html", "#func=image::act_0");
  const { nodes } = await page.send("Accessibility.getFullAXTree");
  const needs = ["button", "textbox", "searchbox", "combobox", "checkbox", "application", "columnheader"];
  const nameless = nodes.filter((node) => !node.ignored && needs.includes(node.role?.value) && !node.name?.value);
  same("controls without a name", nameless.map((node) => node.role.value), []);
  const back = () => page.value("getComputedStyle(document.body).backgroundColor");
  const color = () => page.value("kprof.flame.style.color(kprof.flame.boxes.at(-1))");
  const seen = [];
  for (const value of ["light", "dark"]) {
    await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
    await until(page, `matchMedia("(prefers-color-scheme: ${value})").matches`);
    await new Promise((done) => setTimeout(done, 100));
    seen.push([await back(), await color()]);
    const { data } = await page.send("Page.captureScreenshot", { format: "png" });
    writeFileSync(file(`page-${value}.png`), Buffer.from(data, "base64"));
  }
  same("different colors", seen[0][0] !== seen[1][0] && seen[0][1] !== seen[1][1], true);
});

/// Linear light of a CSS color, from 0 to 1 for red, green and blue.
const LINEAR = `((color) => {
  const context = document.createElement("canvas").getContext("2d");
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((byte) => byte / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
})`;
const dot = (row, color) => row.reduce((sum, factor, at) => sum + factor * color[at], 0);
const luminance = (color) => dot([0.2126, 0.7152, 0.0722], color);
/// Contrast of two colors (WCAG 2.2, section 1.4.3).
function contrast(one, other) {
  const [dark, light] = [one, other].map(luminance).sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}
/// CIELAB, for the difference of two colors (CIE 1976).
function lab(color) {
  const [x, y, z] = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    .map((row, at) => dot(row, color) / [0.9505, 1, 1.089][at])
    .map((part) => (part > 0.008856 ? Math.cbrt(part) : 7.787 * part + 16 / 116));
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}
/// What people without one kind of cones see of linear light (Machado and others 2009, severity 1).
const EYES = {
  all: [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
};

await check(tab, "every label can be read, and every state told apart, in light and dark", async () => {
  const page = await ready("page.html", "#inline=all&kinds=11111");
  for (const value of ["light", "dark"]) {
    await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
    await until(page, `matchMedia("(prefers-color-scheme: ${value})").matches`);
    await new Promise((done) => setTimeout(done, 100));
    const { ink, boxes, pairs, kinds, swatches } = await page.value(`(() => {
      const linear = ${LINEAR};
      const { labels, pathAlpha } = kprof.palette();
      const ink = getComputedStyle(document.body).color;
      const mixed = (box) => "color-mix(in srgb, " + ink + " " + pathAlpha * 100 + "%, " + box + ")";
      const strip = [...document.querySelectorAll("#strip > *")].filter((part) => part.textContent.trim());
      const pairs = [...labels.map((box) => [mixed(box), box]),
        ...strip.map(({ style }) => [style.color, style.backgroundColor])].map((pair) => pair.map(linear));
      return { ink: linear(ink), pairs,
        boxes: kprof.palette().labels.map(linear),
        kinds: kprof.palette().kinds.map(linear),
        swatches: [...document.querySelectorAll("#kinds .swatch")].map((one) => linear(one.style.background)) };
    })()`);
    for (const box of boxes) {
      same(`${value}: contrast ${contrast(ink, box).toFixed(2)} of a label`, contrast(ink, box) >= 4.5, true);
    }
    for (const [one, other] of pairs) {
      same(`${value}: contrast ${contrast(one, other).toFixed(2)} of a path or a part of the strip`,
        contrast(one, other) >= 4.5, true);
    }
    same(`${value}: swatches`, swatches, kinds.slice(0, 5));
    for (const [name, matrix] of Object.entries(EYES)) {
      const seen = kinds.map((color) => matrix.map((row) => Math.min(1, Math.max(0, dot(row, color))))).map(lab);
      seen.forEach((one, at) => seen.slice(0, at).forEach((other, before) => {
        const distance = Math.hypot(...one.map((part, axis) => part - other[axis]));
        same(`${value}, ${name}: distance ${distance.toFixed(1)} of states ${before} and ${at}`, distance >= 20, true);
      }));
    }
  }
});

await check(tab, "one screen of 1280 x 800 has everything, and 390 pixels of width are enough", async () => {
  const page = await ready("page.html");
  for (const [width, height, isOneScreen] of [[1280, 800, true], [390, 800, false]]) {
    await page.send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
    await until(page, `innerWidth === ${width}`);
    await page.value("kprof.change({ func: kprof.data.names.findIndex((name) => /act_3$/.test(name)) })");
    await new Promise((done) => setTimeout(done, 200));
    const { scrolls, wide, graph, rows, detail, status } = await page.value(`(() => {
      const area = (id) => document.getElementById(id).getBoundingClientRect();
      const all = document.scrollingElement;
      return { scrolls: all.scrollHeight > innerHeight, wide: all.scrollWidth > innerWidth, graph: area("scroll").height,
        rows: area("list").height, detail: area("detail").bottom <= innerHeight, status: area("hover").bottom };
    })()`);
    same(`${width}: nothing is wider than the window`, wide, false);
    same(`${width}: the graph and the table have room`, graph > 100 && rows > 100, true);
    if (isOneScreen) same("one screen", [scrolls, detail, status <= height], [false, true, true]);
    const { data } = await page.send("Page.captureScreenshot", { format: "png" });
    writeFileSync(file(`page-${width}.png`), Buffer.from(data, "base64"));
  }
  await page.send("Emulation.clearDeviceMetricsOverride");
});

await check(tab, "the strip has all the time of the range, and its parts switch the kinds", async () => {
  const page = await ready("page.html");
  const parts = () => page.value(`[...document.querySelectorAll("#strip > *")].map((part) => part.title)`);
  const whole = await parts();
  const sum = whole.reduce((sum, title) => sum + Number(/ ([\d.]+) %/.exec(title)[1]), 0);
  same("parts of the whole", Math.abs(sum - 100) < 0.1, true);
  const ticks = await page.value("[...kprof.ticks()]");
  const truth = JSON.parse(read("new.ticks.json"));
  const must = (kind) => truth.filter(([, , of]) => of === kind).length;
  for (const kind of [3, 4, 5]) {
    same(`ticks of kind ${kind}: ${ticks[kind]} of ${must(kind)}`, Math.abs(ticks[kind] - must(kind)) < 1, true);
  }
  await page.value("kprof.change({ from: 0, to: 1000 })");
  same("another range", JSON.stringify(await parts()) !== JSON.stringify(whole), true);
  const before = await page.value("kprof.choice.kinds");
  await click(page, "#strip > button");
  same("the first part is switched", await page.value("kprof.choice.kinds"), before.map((is, at) => (at ? is : !is)));
});

await check(tab, "what the pointer is at is said at the pointer and in the status bar", async () => {
  const page = await ready("page.html");
  const found = await box(page, "(name) => /act_/.test(name)");
  await mouse(page, "mouseMoved", found.at, { button: "none" });
  const tip = () => page.value(`(() => {
    const tip = document.getElementById("tip"), { left, top, right, bottom } = tip.getBoundingClientRect();
    return { hidden: tip.hidden, text: tip.textContent, status: document.getElementById("hover").textContent,
      inside: left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight };
  })()`);
  const at = await tip();
  same("a box", [at.hidden, at.inside, at.text === at.status, at.text.startsWith(found.name)], [false, true, true, true]);
  const [x, y] = await middle(page, "#timeline");
  await mouse(page, "mouseMoved", [x, y], { button: "none" });
  const lane = await tip();
  same("a lane", [lane.hidden, /^CPU \d+, [\d.]+ s: \d+ % [a-z ]+/.test(lane.text)], [false, true]);
  await mouse(page, "mouseMoved", [2, 2], { button: "none" });
  same("nothing", (await tip()).hidden, true);
});

await check(tab, "damaged data is said and not shown", async () => {
  const html = read("page.html");
  const at = html.indexOf('id="data">') + 2000;
  writeFileSync(file("damaged.html"), `${html.slice(0, at)}AAAA${html.slice(at + 4)}`);
  const page = await opened(tab, address("damaged.html"));
  await until(page, "document.readyState === 'complete' && !document.getElementById('failure').hidden");
  same("message", (await text(page, "failure")).startsWith("The data of this page cannot be shown"), true);
  same("pictures", await page.value("document.querySelector('main').hidden"), true);
});

tab.end();
