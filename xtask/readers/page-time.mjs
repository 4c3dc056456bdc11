// The lanes of the page: what of the time is in sight, samples one by one, the flame chart.
//
// In: the folder with the pages (`xtask/src/test/page.rs` makes them), and a browser's path. Out: a line per check:
// `ok NAME`, `FAILED NAME: WHY`.

import { check, same, started, until } from "./browser.mjs";
import { box, click, drawn, microsAt, middle, mouse, pick, press, sight, text, wait, wheel, width } from "./pointer.mjs";

const [folder, browser] = process.argv.slice(2);
const tab = started(browser, folder, "1500,1400");
const ready = (name, fragment) => drawn(tab, folder, name, fragment);

await check(tab, "wheel, pinch, overview and the keys W A S D Z change what of the time is in sight", async () => {
  const page = await ready("page.html");
  const [x, y] = await middle(page, "#timeline");
  const at = [x + 100, y];
  const whole = await sight(page);
  await mouse(page, "mouseMoved", at, { button: "none" });
  const before = await microsAt(page, at);
  await wheel(page, at, -600);
  await until(page, "kprof.choice.sight !== null");
  const near = await sight(page);
  same("the wheel zooms in", width(near) < width(whole) / 2, true);
  const after = await microsAt(page, at);
  same(`the time at the pointer stays: ${before}, ${after}`, Math.abs(after - before) <= width(near) / 500, true);
  same("the samples stay", await page.value("kprof.choice.from"), null);
  for (const [key, test] of [["w", (is, was) => width(is) < width(was)], ["d", (is, was) => is[0] > was[0]],
    ["a", (is, was) => is[0] < was[0]], ["s", (is, was) => width(is) > width(was)]]) {
    const was = await sight(page);
    await press(page, key, key);
    same(`key ${key}`, test(await sight(page), was), true);
  }
  const over = await middle(page, "#overview");
  await mouse(page, "mousePressed", [over[0] - 300, over[1]]);
  const [from] = await sight(page);
  await mouse(page, "mouseMoved", [over[0] + 300, over[1]], { buttons: 1 });
  await mouse(page, "mouseReleased", [over[0] + 300, over[1]]);
  same("a drag in the overview moves", (await sight(page))[0] > from, true);
  await page.value("kprof.change({ from: 2000000, to: 3000000 })");
  await press(page, "z", "z");
  same("Z shows the range", await sight(page), [2000000, 3000000]);
  const touch = (type, ...xs) =>
    page.send("Input.dispatchTouchEvent", { type, touchPoints: xs.map((x, id) => ({ x, y, id })) });
  const held = [await microsAt(page, [x - 50, y]), await microsAt(page, [x + 50, y])];
  await touch("touchStart", x - 50);
  await touch("touchStart", x - 50, x + 50);
  await touch("touchMove", x - 200, x + 200);
  await touch("touchEnd");
  const pinched = await sight(page);
  same("two fingers zoom in", width(pinched) < 300_000, true);
  const now = [await microsAt(page, [x - 200, y]), await microsAt(page, [x + 200, y])];
  same("and keep their times", now.every((micros, at) => Math.abs(micros - held[at]) < 5000), true);
  same("range", await page.value("[kprof.choice.from, kprof.choice.to]"), [2000000, 3000000]);
  for (let left = 2; left > 0; left--) await press(page, "Escape");
  same("Escape shows all", await sight(page), whole);
});

await check(tab, "a sample is as wide as its interval, a busy CPU is full, lost time is hatched", async () => {
  const page = await ready("page.html");
  const found = await page.value(`(() => {
    const { timeline, data } = kprof, { span } = timeline.lanes.spans, found = [];
    const one = [...data.samples.cpu.keys()].find((at) => data.samples.cpu[at] === 1 && span[at] > 700);
    for (const wide of [600, 60, 20]) {
      kprof.change({ sight: [data.samples.time[one] + 30, data.samples.time[one] + 30 + wide] });
      const { image, columns } = timeline;
      const lane = image.getContext("2d").getImageData(0, 22, columns, 22).data;
      const colors = new Set();
      for (let at = 3 * columns * 4; at < 21 * columns * 4; at += 4) colors.add(lane.slice(at, at + 4).join());
      found.push(colors.size);
    }
    return found;
  })()`);
  same("colors of one sample at three widths", found, [1, 1, 1]);
  const hatched = await page.value(`(() => {
    const { timeline, data } = kprof;
    const [cpu, from, to] = data.gaps.toSorted((a, b) => b[3] / (b[2] - b[1]) - a[3] / (a[2] - a[1]))[0];
    kprof.change({ sight: [from, to] });
    const { image, columns } = timeline;
    const row = image.getContext("2d").getImageData(0, (cpu - 1) * 22 + 10, columns, 1).data;
    const pixels = [...Array(columns).keys()].map((at) => row.slice(4 * at, 4 * at + 4).join());
    return [new Set(pixels).size, pixels.filter((one, at) => at && one !== pixels[at - 1]).length > columns / 4];
  })()`);
  same("a hatch of two colors", [hatched[0] >= 2, hatched[1]], [true, true]);
});

await check(tab, "the choice follows a drag before it ends, and one drag is one step back", async () => {
  const page = await ready("page.html");
  const [x, y] = await middle(page, "#timeline");
  await mouse(page, "mousePressed", [x, y]);
  await mouse(page, "mouseMoved", [x + 60, y], { buttons: 1 });
  await mouse(page, "mouseMoved", [x + 120, y], { buttons: 1 });
  await until(page, "kprof.choice.from !== null", 5000);
  const during = await page.value("kprof.now.all");
  await mouse(page, "mouseMoved", [x + 200, y], { buttons: 1 });
  await mouse(page, "mouseReleased", [x + 200, y]);
  same("more samples at the end", await page.value("kprof.now.all") > during, true);
  await page.value("history.back()");
  await until(page, "kprof.choice.from === null", 5000);
});

await check(tab, "lanes are by CPU or by task, and many of them scroll in a third of the window", async () => {
  const page = await ready("page.html");
  const names = () => page.value(`(({ lanes }) =>
    Array.from({ length: lanes.length }, (_, lane) => lanes.name(lane)))(kprof.timeline)`);
  same("CPUs", await names(), ["CPU 1", "CPU 2", "CPU 3"]);
  await pick(page, "lanesBy", "task");
  same("tasks, most samples first", await names(), ["sh", "copy"]);
  const [x, y] = await middle(page, "#timeline");
  await mouse(page, "mouseMoved", [x, y - 10], { button: "none" });
  same("said", /^sh, [\d.]+ s: \d+ % /.test(await text(page, "hover")), true);
  const many = await ready("lanes.html");
  const screen = { width: 1280, height: 800, deviceScaleFactor: 1, mobile: false };
  await many.send("Emulation.setDeviceMetricsOverride", screen);
  await until(many, "innerWidth === 1280");
  await wait(200);
  const { lanes, graph, count } = await many.value(`({ count: kprof.timeline.lanes.length,
    lanes: document.getElementById("lanes").getBoundingClientRect().height,
    graph: document.getElementById("scroll").getBoundingClientRect().height })`);
  same("127 lanes", [count, lanes <= 800 / 3, graph > 150], [127, true, true]);
  await many.value("document.getElementById('lanes').scrollTop = 1e6");
  const last = await middle(many, "#lanes");
  const bottom = await many.value("document.getElementById('lanes').getBoundingClientRect().bottom");
  await wait(100);
  await mouse(many, "mouseMoved", [last[0], bottom - 8], { button: "none" });
  same("the last lane", (await text(many, "hover")).slice(0, 8), "CPU 127,");
});

await check(tab, "a click in a lane shows that sample's stack, with the samples before and after it", async () => {
  const page = await ready("page.html", "#inline=all&kinds=11111");
  const [x, y] = await middle(page, "#timeline");
  await wheel(page, [x, y], -2000);
  await until(page, "kprof.choice.sight !== null");
  const [from, to] = await sight(page);
  const at = await page.value(`(() => {
    const { time, cpu } = kprof.data.samples;
    const sample = [...time.keys()].find((at) => cpu[at] === 1 && time[at] > ${(from + to) / 2});
    const { left, top } = document.getElementById("timeline").getBoundingClientRect();
    return [sample, left + kprof.timeline.x(time[sample]) + 1, top + 33];
  })()`);
  await click(page, at.slice(1));
  same("sample", await page.value("kprof.choice.sample"), at[0]);
  const stack = () => page.value(`[...document.querySelectorAll("#sample .stack button")].map((one) => one.title)`);
  const must = () => page.value(`(({ data, choice, now }) => {
    const names = [];
    for (let node = data.stacks.node[data.samples.stack[choice.sample]]; node > 0; node = data.nodes.parent[node]) {
      const frame = data.nodes.frame[node];
      names.push(data.names[frame] + (data.traits[frame] & 1 ? " (inlined)" : ""));
    }
    return names;
  })(kprof)`);
  same("stack", await stack(), await must());
  await click(page, "#next");
  const next = await page.value("kprof.choice.sample");
  const between = `kprof.data.samples.cpu.subarray(${at[0]} + 1, ${next} + 1)`;
  const isNeighbour = await page.value(`${between}.indexOf(1) === ${next - at[0] - 1}`);
  same("the next one of the same CPU", [next > at[0], isNeighbour], [true, true]);
  same("its stack", await stack(), await must());
  await press(page, "Enter", "\r");
  const focused = await page.value(`[document.activeElement.id, kprof.choice.sample > ${next}]`);
  same("the button keeps the focus", focused, ["next", true]);
  await page.value("document.getElementById('timeline').focus()");
  await press(page, "ArrowLeft");
  same("arrow left", await page.value("kprof.choice.sample"), next);
  await press(page, "ArrowDown");
  same("arrow down", await page.value("kprof.data.samples.cpu[kprof.choice.sample]"), 2);
  await press(page, "Escape");
  same("Escape closes it", [await page.value("kprof.choice.sample"), (await stack()).length], [null, 0]);
});

await check(tab, "the flame chart has the stacks of a lane in the order of time", async () => {
  const page = await ready("page.html", "#inline=all&kinds=11111");
  await page.value("kprof.change({ sight: [2000000, 2100000] })");
  await page.value("document.getElementById('timeline').focus()");
  await press(page, "ArrowDown");
  await press(page, "Enter");
  same("view", await page.value("kprof.choice.view"), "chart");
  const wrong = await page.value(`(() => {
    const { flame, data, now, timeline } = kprof, { samples, stacks } = data, { lanes } = timeline;
    const lane = lanes.lane[lanes.of[kprof.choice.sample]], wrong = [];
    let seen = 0;
    lanes.each(2000000, 2100000, (at, begin, end) => {
      if (lanes.lane[lanes.of[at]] !== lane) return;
      const x = (((begin + end) / 2 - 2000000) / 100000) * flame.width;
      const is = flame.boxes.filter((box) => box.x <= x && x < box.x + box.width).sort((a, b) => a.row - b.row)
        .map((box) => box.node);
      const must = [];
      for (let node = now.calls.leaf[samples.stack[at]]; node > 0; node = now.calls.parent[node]) must.unshift(node);
      if (is.join() !== must.join()) wrong.push(at);
      seen++;
    });
    return [seen > 20, wrong];
  })()`);
  same("samples whose boxes are others", wrong, [true, []]);
  const found = await box(page, "(name) => name.includes('act_')");
  await click(page, found.at);
  same("a click selects the function", await page.value("kprof.data.names[kprof.choice.func]"), found.name);
  const said = await text(page, "hover");
  same(`said: ${said}`, /: [\d.]+ to [\d.]+ s, \d+ samples$/.test(said), true);
  await page.value("document.getElementById('flame').focus()");
  await press(page, "ArrowRight");
  const boxes = await page.value("kprof.flame.boxes.filter((box) => kprof.flame.isSelected(box)).length");
  same("the arrows walk the chart", boxes, 1);
});

await check(tab, "a selected function lights up in the lanes where it is in time", async () => {
  const page = await ready("page.html");
  const lit = () => page.value(`(() => {
    const { image, columns } = kprof.timeline, context = document.createElement("canvas").getContext("2d");
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--mark");
    context.fillRect(0, 0, 1, 1);
    const mark = context.getImageData(0, 0, 1, 1).data.join();
    const row = image.getContext("2d").getImageData(0, 20, columns, 1).data;
    return [...Array(columns).keys()].filter((at) => row.slice(4 * at, 4 * at + 4).join() === mark);
  })()`);
  same("without a function", await lit(), []);
  await page.value("kprof.change({ sight: [2000000, 2200000] })");
  await click(page, "#functions tbody tr:nth-child(2) button");
  const must = await page.value(`(() => {
    const { data, now, timeline, choice } = kprof, { samples } = data, columns = new Set();
    timeline.lanes.each(2000000, 2200000, (at, begin, end) => {
      let has = false;
      for (let node = now.calls.leaf[samples.stack[at]]; node > 0; node = now.calls.parent[node]) {
        has ||= now.calls.frame[node] === choice.func;
      }
      const column = (micros) => ((micros - 2000000) / 200000) * timeline.columns;
      if (!has || samples.cpu[at] !== 0) return;
      for (let one = Math.ceil(column(begin)); one < Math.floor(column(end)); one++) columns.add(one);
    });
    return [...columns].sort((a, b) => a - b);
  })()`);
  const is = new Set(await lit());
  same("columns", [must.length > 20, must.filter((column) => !is.has(column))], [true, []]);
  same("not everything", is.size < await page.value("kprof.timeline.columns"), true);
});

tab.end();
