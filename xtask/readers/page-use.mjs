// Names, colors, links, shares and the table of the page, used with pointer and keyboard.
//
// In: the folder with the pages (`xtask/src/test/page.rs` makes them), and a browser's path. Out: a line per check:
// `ok NAME`, `FAILED NAME: WHY`.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { check, same, started, until } from "./browser.mjs";
import { box, click, drawn, middle, mouse, pick, press, text, width } from "./pointer.mjs";

const [folder, browser] = process.argv.slice(2);
const tab = started(browser, folder, "1500,1400");
const ready = (name, fragment) => drawn(tab, folder, name, fragment);

await check(tab, "names are folded to what can be read, and copied in full", async () => {
  const page = await ready("page.html");
  const cases = [
    ["a::b::c", "a::b::", "c"], ["alloc::vec::Vec<T,A>::push", "alloc::vec::Vec<..>::", "push"],
    ["core::ptr::drop_in_place::<alloc::string::String>", "core::ptr::", "drop_in_place<..>"],
    ["<alloc::vec::Vec<T> as core::ops::Drop>::drop", "<Vec<..> as Drop>::", "drop"],
    ["test::folder::{{closure}}", "test::", "folder::{{closure}}"],
    ["a::b::{{closure}}::{{closure}}", "a::", "b::{{closure}}::{{closure}}"],
    ["core::ops::FnOnce<fn(u8) -> u8>::call", "core::ops::FnOnce<..>::", "call"],
    ["memcmp", "", "memcmp"], ["[syscall]", "", "[syscall]"],
  ];
  for (const [name, path, last] of cases) {
    same(name, await page.value(`kprof.partsOf(${JSON.stringify(name)})`), { path, last });
  }
  const homes = [["a::b::c", "a", "a::b"], ["<a::B<c::D> as e::F>::g", "a", "a"], ["memcmp", "", ""],
    ["<&mut a::b::C as e::F>::g", "a", "a::b"]];
  for (const [name, crate, module] of homes) {
    same(`home of ${name}`, await page.value(`[false, true].map((is) => kprof.homeOf(${JSON.stringify(name)}, is))`),
      [crate, module]);
  }
  const copied = await page.value(`(() => {
    kprof.change({ func: kprof.data.names.findIndex((name) => /</.test(name)) });
    const event = new ClipboardEvent("copy", { clipboardData: new DataTransfer(), cancelable: true });
    document.dispatchEvent(event);
    return event.clipboardData.getData("text/plain").startsWith(kprof.data.names[kprof.choice.func]);
  })()`);
  same("the full name is copied", copied, true);
});

await check(tab, "chains of a single callee share a row, and colors are by kind, crate or module", async () => {
  const page = await ready("page.html", "#inline=all");
  const apart = await page.value("kprof.flame.boxes.length");
  await pick(page, "chains", "joined");
  const { joined, wrong, said } = await page.value(`(() => {
    const { boxes, style, parts: [{ tree, weights }] } = kprof.flame;
    const hasOnly = (node) => [...tree.children.subarray(tree.first[node], tree.first[node + 1])]
      .some((child) => weights.total[child] === weights.total[node]);
    const one = boxes.find((box) => box.top !== undefined && box.top !== box.node);
    return { joined: boxes.length, wrong: boxes.filter((box) => box.node && hasOnly(box.node)).length,
      said: style.describe(one) };
  })()`);
  same("fewer boxes", joined < apart, true);
  same("boxes with a single callee", wrong, 0);
  same("the whole chain is said", said.includes(" › "), true);
  for (const [by, home] of [["crate", "image"], ["module", "core::iter::adapters::map"]]) {
    await page.value(`kprof.change({ color: "${by}" })`);
    const names = await page.value(`[...document.querySelectorAll("#legend li")].map((one) => one.textContent)`);
    same(`legend by ${by}`, names.some((name) => name.startsWith(home.split("::")[0])), true);
  }
});

await check(tab, "every step can be taken back, and links have names", async () => {
  const page = await ready("page.html");
  const found = await box(page, "(name) => name.includes('act_3')");
  await click(page, found.at);
  const zoomed = await page.value("[kprof.choice.zoom, kprof.choice.func]");
  await click(page, "#functions th:nth-child(4) button");
  await page.value("kprof.change({ view: 'icicle' })");
  const hash = decodeURIComponent(await page.value("location.hash"));
  same("names in the link", /zoom=/.test(hash) && hash.includes("func=image::act_3"), true);
  same("numbers in the link", /(zoom|func)=\d/.test(hash), false);
  const steps = [["kprof.choice.view", "flame"], ["kprof.choice.sort", "self"], ["kprof.choice.zoom.length", 0]];
  for (const [what, must] of steps) {
    await page.value("history.back()");
    await until(page, `${what} === ${JSON.stringify(must)}`, 5000);
  }
  await page.value("history.forward()");
  await until(page, "kprof.choice.zoom.length > 0", 5000);
  same("forward", await page.value("[kprof.choice.zoom, kprof.choice.func]"), zoomed);
  await page.value("kprof.change({ sample: 5, hiddenTasks: new Set([1]), sight: [1000, 2000000] })");
  const again = await ready("page.html", await page.value("location.hash"));
  const seen = `(({ zoom, func, sample, hiddenTasks, sight }) => [zoom, func, sample, [...hiddenTasks], sight])(
    kprof.choice)`;
  same("a link restores all", await again.value(seen), await page.value(seen));
});

await check(tab, "shares are of the chosen samples or of all time", async () => {
  const page = await ready("page.html");
  const first = () => page.value(`document.querySelector("#functions tbody tr").cells[2].textContent`);
  const [samples, time, self] =
    await page.value("(({ now }) => [now.all, now.time, Math.max(...now.functions.self)])(kprof)");
  same("of samples", await first(), `${((self * 100) / samples).toFixed(2)} %`);
  await pick(page, "of", "time");
  same("of all time", await first(), `${((self * 100) / time).toFixed(2)} %`);
  const found = await box(page, "(name, box) => /image.rs:/.test(kprof.flame.style.describe(box))");
  await mouse(page, "mouseMoved", found.at, { button: "none" });
  const said = await text(page, "hover");
  const isWhole = / samples, [\d.]+ %, [\d.]+ % of all time.*image\.rs:\d+$/.test(said);
  same(`both and the source line are said: ${said}`, isWhole, true);
});

await check(tab, "the splitter moves by pointer and keys, and sorting keeps the focus", async () => {
  const page = await ready("page.html");
  const width = () => page.value("document.getElementById('list').getBoundingClientRect().width");
  const before = await width();
  const [x, y] = await middle(page, "#splitter");
  await mouse(page, "mousePressed", [x, y]);
  await mouse(page, "mouseMoved", [x + 150, y], { buttons: 1 });
  await mouse(page, "mouseReleased", [x + 150, y]);
  const dragged = await width();
  same("dragged", Math.abs(dragged - before - 150) < 12, true);
  await page.value("document.getElementById('splitter').focus()");
  await press(page, "ArrowLeft");
  same("by a key", await width() < dragged, true);
  await page.value("document.querySelector('#functions th:nth-child(4) button').focus()");
  await press(page, "Enter", "\r");
  const focused = await page.value("[document.activeElement.textContent, kprof.choice.sort]");
  same("focus", focused, ["Total ▼", "total"]);
  await page.value("document.querySelector('#functions tbody tr:nth-child(3) button').focus()");
  const name = await page.value("document.activeElement.title");
  await press(page, "Enter", "\r");
  same("focus of a row", await page.value("[document.activeElement.title, kprof.choice.func !== null]"), [name, true]);
  await until(page, "document.querySelectorAll('#functions .spark path').length > 20", 5000);
});

await check(tab, "a comparison has a dot with its interval for each function, the largest change first", async () => {
  const page = await ready("compared.html");
  const rows = await page.value(`[...document.querySelectorAll("#functions tbody tr")].map((row) => {
    const svg = row.querySelector("td:has(.unseen) svg");
    const [, line, dot] = svg ? [...svg.querySelectorAll("path")].map((path) => path.getAttribute("d")) : [];
    const frame = kprof.data.byName.get(row.querySelector("button").title);
    return { line, dot, interval: kprof.data.old.rows[kprof.data.old.frames[frame]?.[1]],
      change: Math.abs(Number.parseFloat(row.cells[5].textContent)) || 0 };
  })`);
  same("order", rows.map(({ change }) => change), rows.map(({ change }) => change).toSorted((a, b) => b - a));
  const drawn = rows.filter(({ line }) => line);
  same("rows with a dot", drawn.length > 20, true);
  for (const { line, dot, interval: [, , low, middle, high] } of drawn) {
    const [from, to] = /^M([\d.]+) 6H([\d.]+)$/.exec(line).slice(1).map(Number);
    same("sides", [from < 50, to > 50], [low < 0, high > 0]);
    const at = Number(/^M([\d.]+) /.exec(dot)[1]) + 2;
    same("the dot is in its interval", from <= at && at <= to && (at > 50) === (middle > 0), true);
  }
});

await check(tab, "the details have the source with its heat, and the instructions of each line below it", async () => {
  const page = await ready("page.html", "#inline=all&func=image::act_20");
  const rows = await page.value(`[...document.querySelectorAll("#detail caption")]
    .filter((one) => one.textContent.includes("source line")).flatMap((one) => [...one.parentElement.tBodies[0].rows])
    .map(({ cells: [share, samples, code] }) => ({ text: code.textContent, isInstruction: code.matches(".instruction"),
      samples: Number(samples.textContent.replaceAll(",", "")), heat: share.style.getPropertyValue("--heat") }))`);
  const file = readFileSync(join(folder, "image.rs"), "utf8").split("\n");
  const lines = rows.filter(({ isInstruction }) => !isInstruction);
  const shown = lines.map(({ text }) => /^image\.rs:(\d+) {2}(.*)$/.exec(text)).filter(Boolean);
  same("lines of the file", shown.length > 2, true);
  for (const [, line, text] of shown) same(`line ${line}`, text, file[line - 1]);
  const numbers = shown.map(([, line]) => Number(line));
  same("in the order of the source", numbers, numbers.toSorted((a, b) => a - b));
  same("the hottest line", lines.find(({ heat }) => heat === "100%").samples,
    Math.max(...lines.map(({ samples }) => samples)));
  let [sum, before] = [0, ""];
  for (const { text, isInstruction, samples } of rows.toReversed()) {
    if (isInstruction) {
      const [address] = text.split(" ");
      same("ascending addresses", before === "" || address < before, true);
      [sum, before] = [sum + samples, address];
    } else {
      same(`instructions of ${text}`, sum, samples);
      [sum, before] = [0, ""];
    }
  }
});

tab.end();
