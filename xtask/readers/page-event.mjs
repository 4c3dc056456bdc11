// Opens the pages of `kprof-fold html --event` in a browser, and compares their numbers with what `folded --event` and
// `report --event` print, and with the hits that the profile was made of.
//
// In: the folder with the pages and the other outputs (`xtask/src/test/page.rs` makes them), and a browser's path. Out:
// a line per check: `ok NAME`, `FAILED NAME: WHY`.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { check, opened, same, started, until } from "./browser.mjs";

const [folder, browser] = process.argv.slice(2);
const file = (name) => join(folder, name);
const read = (name) => readFileSync(file(name), "utf8");
const tab = started(browser, folder, "1500,1400");

/// Opens a page and waits until it has drawn itself.
async function ready(name) {
  const page = await opened(tab, String(pathToFileURL(file(name))));
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
    "({ end: kprof.data.end, columns: kprof.timeline.lanes.width, most: kprof.timeline.most })");
  const sums = new Map();
  for (const [at, cpu, weight] of hits) {
    const key = `${cpu} ${Math.floor(at * (columns / end))}`;
    sums.set(key, (sums.get(key) ?? 0) + weight);
  }
  same("most", most, Math.max(...sums.values()));
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
  await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: "light" }] });
  const { data } = await page.send("Page.captureScreenshot", { format: "png" });
  writeFileSync(file("event.png"), Buffer.from(data, "base64"));
  same("messages on the console", tab.said, []);
});

tab.end();
