// Opens the pages of `kprof-fold html --event` in a browser, and compares their numbers with what `folded --event` and
// `report --event` print, and with the hits that the profile was made of.
//
// In: the folder with the pages and the other outputs (`xtask/src/test/page.rs` makes them), and a browser's path. Out:
// a line per check: `ok NAME`, `FAILED NAME: WHY`.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { check, opened, same, started, until } from "./browser.mjs";
import { middle, mouse, press } from "./pointer.mjs";

const [folder, browser] = process.argv.slice(2);
const file = (name) => join(folder, name);
const read = (name) => readFileSync(file(name), "utf8");
const tab = started(browser, folder, "1500,1400");

/// Opens a page and waits until it has drawn itself.
async function ready(name, fragment = "") {
  const page = await opened(tab, String(pathToFileURL(file(name))) + fragment);
  await until(page, "Boolean(window.kprof?.now.millis)");
  return page;
}

/// Lines of a text, sorted.
const sorted = (text) => text.split("\n").filter((line) => line).sort();
const text = (page, id) => page.value(`document.getElementById("${id}").textContent`);
/// Folded stacks with a choice, sorted.
const folded = async (page, choice) => sorted(
  await page.value(`(document.getElementById("reset").click(), kprof.change({ ${choice} }), kprof.folded())`));
const ONLY_CPU_2 = "hiddenCpus: new Set(kprof.data.cpus.filter((cpu) => cpu !== 2))";
const ONLY_COPY = "hiddenTasks: new Set(kprof.data.tasks.keys().filter((at) => kprof.data.tasks[at] !== 'copy'))";

/// A picture of a page, to be looked at.
async function picture(page, name) {
  await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "light" }] });
  const { data } = await page.send("Page.captureScreenshot", { format: "png" });
  writeFileSync(file(name), Buffer.from(data, "base64"));
}

const RANGES = [[0, 1], [0, 400_000], [1_234_567, 1_999_999], [1_000_000, 3_000_000], [500_000, 20_000_000]];

await check(tab, "event: the whole recording has the numbers of folded, by weight and by hits, also of a CPU", async () => {
  for (const name of ["exact", "drawn", "counted"]) {
    const page = await ready(`event-${name}.html`);
    same(`${name}, all`, await folded(page, ""), sorted(read(`event-${name}.folded`)));
    same(`${name}, CPU 2`, await folded(page, ONLY_CPU_2), sorted(read(`event-${name}-cpu.folded`)));
  }
  const page = await ready("event-exact.html");
  const task = await folded(page, ONLY_COPY);
  same("a task", task, sorted(read("event-exact-task.folded")));
});

await check(tab, "event: a range has the weights of its hits, and nothing of which no time is known", async () => {
  const page = await ready("event-exact.html");
  const hits = JSON.parse(read("event-exact.json"));
  for (const [from, to] of RANGES) {
    const inside = hits.filter(([at]) => at >= from && at < to);
    const is = await page.value(`(kprof.change({ from: ${from}, to: ${to} }),
      { samples: kprof.now.counted.samples, hits: kprof.now.counted.hits, all: kprof.now.all })`);
    const weight = inside.reduce((sum, [, , one]) => sum + one, 0);
    same(`${from} to ${to}`, is, { samples: weight, hits: inside.length, all: weight });
    same("said", (await text(page, "summary")).endsWith("of what was lost or not recorded no time is known"), true);
  }
});

await check(tab, "event: every number is in the unit of the weights", async () => {
  for (const [name, unit] of [["exact", "ms"], ["drawn", "bytes"], ["counted", "hits"]]) {
    const page = await ready(`event-${name}.html`);
    await page.value("kprof.change({ func: kprof.data.names.indexOf('f7') })");
    const is = await page.value(`({
      heads: [...document.querySelectorAll("#functions th.number, #detail th.number")].map((cell) => cell.textContent),
      scale: document.getElementById("scale").textContent, main: document.querySelector("main").innerText,
      box: kprof.flame.style.describe(kprof.flame.boxes[0]) })`);
    const heads = is.heads.filter((head) => !/^(Self|Total|Share)/.test(head));
    same(`${name}: heads`, [...new Set(heads)], [unit]);
    same(`${name}: height of a lane`, is.scale.includes(` ${unit} in `), true);
    same(`${name}: box`, is.box.includes(` ${unit}, `), true);
    same(`${name}: no samples`, /sample/i.exec(is.main)?.[0], undefined);
  }
});

await check(tab, "event: milliseconds have every digit of the nanoseconds", async () => {
  const page = await ready("event-exact.html");
  const lines = read("event-exact.folded").split("\n");
  const sum = lines.filter((line) => line && !line.startsWith("["))
    .reduce((sum, line) => sum + BigInt(line.split(" ").at(-1)), 0n);
  const digits = String(sum).padStart(7, "0");
  const shown = (await text(page, "summary")).split(" ms")[0].replaceAll(",", "").split(": ")[1];
  same("sum", shown, `${digits.slice(0, -6)}.${digits.slice(-6)}`);
});

await check(tab, "event: the lanes are as high as the hits weigh", async () => {
  const page = await ready("event-exact.html");
  const hits = JSON.parse(read("event-exact.json"));
  const { end, columns, most } = await page.value(
    "({ end: kprof.data.end, columns: kprof.timeline.columns, most: kprof.timeline.most })");
  const sums = new Map();
  for (const [at, cpu, weight] of hits) {
    const key = `${cpu} ${Math.floor(at * (columns / end))}`;
    sums.set(key, (sums.get(key) ?? 0) + weight);
  }
  same("most", most, Math.max(...sums.values()));
});

await check(tab, "event: the histogram has every hit, and a brush or the arrows choose by weight", async () => {
  const page = await ready("event-exact.html");
  const weights = JSON.parse(read("event-exact.json")).map(([, , weight]) => weight).sort((a, b) => a - b);
  const [said, count] = await page.value("[kprof.histogram.text, kprof.histogram.count]");
  const milliseconds = (part) => (weights[Math.floor(part * weights.length)] / 1e6).toFixed(6);
  const must = [0.5, 0.9, 0.99].map((part) => `p${part * 100} ${milliseconds(part)} ms`);
  same("said", said, `${weights.length.toLocaleString("en")} hits: ${must.join(", ")}`);
  const inside = async (what) => {
    const [low, high, hits, beside] = await page.value(
      "[...kprof.choice.weights, kprof.now.counted.hits, kprof.now.counted.lost]");
    same(what, [hits, beside], [weights.filter((one) => one >= low && one < high).length, 0]);
    return hits;
  };
  const [x, y] = await middle(page, "#histogram");
  await mouse(page, "mousePressed", [x, y]);
  await mouse(page, "mouseMoved", [x + 100, y], { buttons: 1 });
  await mouse(page, "mouseMoved", [x + 200, y], { buttons: 1 });
  await mouse(page, "mouseReleased", [x + 200, y]);
  const some = await inside("brushed");
  same("some hits", some > 0 && some < weights.length, true);
  await page.value("document.getElementById('histogram').focus()");
  await press(page, "ArrowRight");
  same("fewer by a key", await inside("by a key") < some, true);
  for (let step = 0; step < 2; step++) await press(page, "Escape");
  same("all again", [await page.value("kprof.choice.weights"), count > 20], [null, true]);
  const drawn = await ready("event-drawn.html");
  const isHidden = await drawn.value("document.getElementById('histogram').hidden");
  same("no histogram of what stands for others", isHidden, true);
});

await check(tab, "event: the head says what the point is, and where all of its weight is", async () => {
  const page = await ready("event-drawn.html");
  same("verdict", await text(page, "balance"), "balanced: every hit is accounted for");
  const rows = await page.value(`[...document.querySelectorAll("#spent tr")].map((row) => row.cells[1].textContent)`);
  const whole = read("event-drawn.folded").split("\n").filter((line) => line);
  const sum = (test) => whole.filter(test).reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
  const must = [(line) => !line.startsWith("["), (line) => line.startsWith("[lost]"),
    (line) => line.startsWith("[not recorded]")].map((test) => String(sum(test)));
  same("weights", rows, must);
  await page.value("kprof.change({ view: 'icicle' })");
  await picture(page, "event.png");
  same("messages on the console", tab.said, []);
});

await check(tab, "heap.live: the whole recording has the numbers of folded, in bytes and in allocations", async () => {
  for (const name of ["heap", "heap-count"]) {
    const page = await ready(`event-${name}.html`);
    same(name, await folded(page, ""), sorted(read(`event-${name}.folded`)));
  }
  const page = await ready("event-heap.html");
  same("a task", await folded(page, ONLY_COPY), sorted(read("event-heap-task.folded")));
  const count = await text(await ready("event-heap-count.html"), "summary");
  same("unit of allocations", count.includes(" allocations in "), true);
});

await check(tab, "heap.live: a range has what was allocated in it and is not freed, and the page says so", async () => {
  const page = await ready("event-heap.html");
  const made = JSON.parse(read("event-heap.json"));
  for (const [from, to] of RANGES) {
    const inside = made.filter(([at]) => at >= from && at < to);
    const is = await page.value(`(kprof.change({ from: ${from}, to: ${to} }),
      { samples: kprof.now.counted.samples, hits: kprof.now.counted.hits, all: kprof.now.all })`);
    const weight = inside.reduce((sum, [, , one]) => sum + one, 0);
    same(`${from} to ${to}`, is, { samples: weight, hits: inside.length, all: weight });
    same("said", (await text(page, "summary")).endsWith("made in this time, and not freed until the end"), true);
  }
  same("said of the lanes", (await text(page, "scale")).endsWith("at the time at which it was made."), true);
  same("verdict", await text(page, "balance"), "complete: no record of an allocation or of a free was lost");
  const legend = await page.value("[...document.querySelectorAll('#legend li')].map((one) => one.textContent)");
  same("nothing beside", legend.filter((one) => /lost|not recorded/.test(one)), []);
  same("no hits, no samples", /hit|sample/i.exec(await page.value("document.querySelector('main').innerText"))?.[0],
    undefined);
  await picture(page, "heap.png");
});

/// The rows of a comparison by function, and what its table shows of each: the texts of the cells.
const ROWS = `Object.fromEntries(kprof.data.names.map((name, frame) => [name, kprof.data.old.frames[frame]?.[1]])
  .filter(([, at]) => at !== null && at !== undefined).map(([name, at]) => [name, kprof.data.old.rows[at]]))`;
const CELLS = `Object.fromEntries([...document.querySelectorAll("#functions tbody tr")].map((row) => {
  const cells = [...row.cells].map((cell) => cell.textContent);
  return [cells.shift(), cells];
}))`;

await check(tab, "event: a comparison has the weights, changes and intervals of diff", async () => {
  for (const name of ["exact", "drawn", "counted", "whole", "heap"]) {
    const page = await ready(`compared-${name}.html`);
    const diff = JSON.parse(read(`diff-${name}.json`));
    const must = diff.rows.filter((row) => row.kind === "total");
    const [rows, cells] = [await page.value(ROWS), await page.value(CELLS)];
    same(`${name}: functions`, Object.keys(rows).length, must.length);
    for (const row of must) {
      const [old, now, low, middle, high, isSignificant, isExact, isWithinLoss] = rows[row.name];
      same(`${name}: ${row.name}`, [old, now, isSignificant, isExact, isWithinLoss],
        [row.old_weight, row.new_weight, row.significant, row.exact, row.within_loss]);
      for (const [is, other] of [[low, row.change_low], [middle, row.change], [high, row.change_high]]) {
        if (Math.abs(is - other) > 1e-8) throw new Error(`${name}: ${row.name}: ${is}, by diff ${other}`);
      }
      const [, , , , total, , before, change, more, interval] = cells[row.name];
      const number = (text) => Number(text.replaceAll(",", "")) * (diff.unit === "ns" ? 1e6 : 1);
      same(`${name}: weights of ${row.name}`, [total, before, more].map((text) => Math.round(number(text))),
        [row.new_weight, row.old_weight, row.new_weight - row.old_weight]);
      if (Math.abs(Number(change) / 100 - row.change) > 1e-4) throw new Error(`${name}: ${row.name}: ${change}`);
      const isSure = row.exact && row.change_low === row.change_high;
      same(`${name}: interval of ${row.name}`, isSure ? interval === "exact" : / to /.test(interval), true);
      if (row.new_weight > row.old_weight) same("a sign", more[0], "+");
    }
    same(`${name}: exact`, Object.values(cells).some((row) => row[9] === "exact"), name === "whole" || name === "heap");
    const beside = await page.value("kprof.data.old.beside");
    same(`${name}: beside`, beside, [diff.old_lost, diff.old_not_recorded]);
  }
});

await check(tab, "heap.live: with lost records nothing of a comparison is certain, and the page says so", async () => {
  const page = await ready("compared-heap-lossy.html");
  same("verdict", (await text(page, "balance")).startsWith("NOT CERTAIN: records were lost"), true);
  const intervals = await page.value(`[...document.querySelectorAll("#functions tbody tr")].map(({ cells }) =>
    [cells[10].textContent === "exact", cells[10].classList.contains("pale")].join(" "))`);
  same("intervals", [...new Set(intervals)], ["false true"]);
  const colors = await page.value(`kprof.flame.boxes.filter((box) => box.node)
    .map((box) => Number(/ (\\d+)%/.exec(kprof.flame.style.color(box))[1]))`);
  same("full colors", colors.filter((saturation) => saturation > 30), []);
  await page.value("kprof.change({ func: kprof.data.names.indexOf('f3') })");
  same("detail", (await text(page, "detail")).includes("not certain, because records of allocations"), true);
});

await check(tab, "event: a comparison says what is exact, what is lost, and shows no change of that", async () => {
  const heads = (page) => page.value(`[...document.querySelectorAll("#functions th")].map((cell) => cell.textContent)`);
  const about = (page) => page.value(`document.getElementById("about").textContent`);
  const whole = await ready("compared-whole.html", "#sort=change");
  same("head", (await heads(whole)).slice(7, 10).map((head) => head.replace(" ▼", "")),
    ["ms", "Change in points", "ms more (whole)"]);
  same("sentence", (await about(whole)).includes("the differences are exact"), true);
  await whole.value("kprof.change({ func: kprof.data.names.indexOf('f3') })");
  const detail = await text(whole, "detail");
  same("detail", /points: exact, because every hit was recorded/.test(detail) && / ms: -[\d,.]+ ms/.test(detail), true);
  same("the function that was heavier", await whole.value("kprof.now.old.functions.total[kprof.choice.func] >"
    + " kprof.now.functions.total[kprof.choice.func]"), true);
  const [table, details] = await whole.value(`["functions", "detail"].map((id) => {
    const { left, right, top, bottom } = document.getElementById(id).getBoundingClientRect();
    return { left, right, top, bottom };
  })`);
  same("nothing over the table", details.left >= table.right || details.top >= table.bottom, true);
  const faint = await whole.value(`kprof.flame.boxes.filter((box) => box.node > 0 &&
    / 25%/.test(kprof.flame.style.color(box))).length`);
  same("exact changes have full colors", faint, 0);
  same("exact changes are not pale", await whole.value("document.querySelectorAll('#functions td.pale').length"), 0);
  await picture(whole, "compared-whole.png");
  const lossy = await ready("compared-exact.html");
  const cells = await lossy.value(CELLS);
  same("no change of what was lost", [cells["[lost]"][7], cells["[not recorded]"][7]], ["", ""]);
  const summary = await text(lossy, "summary");
  same("said", / ms lost, [\d,.]+ ms not recorded; changes are those of recorded hits$/.test(summary), true);
  same("widened", (await about(lossy)).includes("the intervals are widened by all of them"), true);
  const boxes = await lossy.value(`kprof.flame.boxes.filter((box) => box.node).map((box) =>
    [kprof.flame.style.text(box), kprof.flame.style.describe(box)])`);
  same("boxes without a change", boxes.filter(([name]) => name.startsWith("["))
    .filter(([, words]) => words.includes("change")), []);
  const hasChange = ([name, words]) => name === "f7" && /change [+-][\d.]+ points/.test(words);
  same("boxes with a change", boxes.some(hasChange), true);
  await picture(lossy, "compared-exact.png");
  same("messages on the console", tab.said, []);
});

tab.end();
