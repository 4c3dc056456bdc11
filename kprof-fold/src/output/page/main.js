// The page as a whole: every action changes the choice, and the choice is then drawn. In: events. Out: calls of all
// parts in this order: count, weigh, draw; and the fragment of the address. Each step is in the browser's history.

async function start() {
  const data = await readData();
  setUnit(data);
  let choice = fromFragment(location.hash.slice(1), data);
  const flame = new Flame($("flame"), $("scroll"), $("height"));
  const chosen = (func) => change({ func });
  const places =
    { canvas: $("timeline"), overview: $("overview"), scroll: $("lanes"), spacer: $("tall"), scale: $("scale") };
  const timeline = new Timeline(places, data, {
    select: (from, to, isFirst) => change({ from, to }, isFirst), look,
    pick: (sample) => change({ sample, func: stackOf(data, now.calls, sample).at(-1) ?? null }),
    nameOf: (sample) => data.names[stackOf(data, now.calls, sample).at(-1)] ?? "",
  });
  const histogram = new Histogram($("histogram"), data, (weights, isFirst) => change({ weights }, isFirst));
  const table = new FunctionTable($("functions"), $("more"), $("shown"), data, chosen, (sort) => change({ sort }));
  /// The trees for the present choice of frames, made when they are needed.
  let trees = new Map();
  let treesKey = "";
  let now = {};
  let addressing;
  let address = "";

  function tree(name, make) {
    const key = [choice.inline, choice.kinds[USER]].join();
    if (key !== treesKey) [trees, treesKey] = [new Map(), key];
    if (!trees.has(name)) trees.set(name, make());
    return trees.get(name);
  }

  /// Changes the choice. A step can be taken back; what is typed or dragged changes the last one.
  function change(what, isStep = true) {
    Object.assign(choice, what);
    show();
    keep(isStep);
  }

  function look(sight) {
    choice.sight = sight;
    showTime();
    if (choice.view === "chart") showFlame();
    keep(false);
  }

  /// Keeps the choice in the address. Browsers limit how often it may be changed.
  function keep(isStep) {
    const next = `#${toFragment(choice, data)}`;
    clearTimeout(addressing);
    const replace = () => history.replaceState(null, "", address);
    const isNew = next !== address;
    if (isStep && isNew) {
      if (location.hash !== address && address) replace();
      history.pushState(null, "", next);
    }
    address = next;
    if (!isStep) addressing = setTimeout(replace, 250);
  }

  function show() {
    const began = performance.now();
    // Losses cannot be attributed to a task.
    data.names[data.lostFrame] = choice.hiddenTasks.size ? "[lost, of any task]" : "[lost]";
    const counted = count(data, choice);
    const calls = tree("calls", () => callTree(data, choice));
    const weights = weigh(calls, counted.counts, counted.beside);
    const functions = byFunction(data, calls, weights);
    const all = counted.beside.reduce((sum, one) => sum + one, counted.samples);
    let old = null;
    if (counted.old) {
      const { beside } = data.old;
      const oldWeights = weigh(calls, counted.old, beside);
      old = { weights: oldWeights, samples: counted.oldSamples, functions: byFunction(data, calls, oldWeights),
        all: beside.reduce((sum, one) => sum + one, counted.oldSamples) };
    }
    const ticks = data.event ? null : ticksByKind(data, choice);
    const time = ticks?.reduce((sum, one) => sum + one, 0);
    // Shares are parts of this.
    const base = choice.of === "time" && time ? time : all;
    now = { counted, calls, weights, functions, all, time, base, old, choice };
    showTime();
    showFlame();
    table.show(now);
    showDetails();
    $("strip").hidden = !ticks;
    if (ticks) showStrip(choice, ticks, change);
    showLegend(data, choice, functions);
    histogram.show(choice);
    showControls();
    now.millis = performance.now() - began;
  }

  function showTime() {
    const { func } = choice;
    const isMarked = func === null || func === data.lostFrame ? null
      : tree(`marked ${func}`, () => stacksWith(now.calls, func));
    timeline.show(choice, isMarked);
  }

  function showDetails() {
    const section = $("detail");
    const focused = document.activeElement.id;
    showDetail(section, data, now, chosen, (view) => change({ view, zoom: [] }));
    if (choice.sample !== null) section.prepend(sampleText(data, now.calls, choice.sample, chosen, step));
    if (["previous", "next"].includes(focused)) $(focused)?.focus();
  }

  /// Goes to the sample before or after the chosen one in its lane.
  function step(by) {
    timeline.told.pick(timeline.lanes.beside(choice.sample, by));
  }

  function showFlame() {
    const { counted, weights, calls } = now;
    const { view, func } = choice;
    const isJoined = choice.chains === "joined";
    const part = (tree, grows, weighed) =>
      ({ tree, grows, isJoined, weights: weighed ?? weigh(tree, counted.counts, counted.beside),
        zoom: nodeAt(tree, choice.zoom) });
    let parts = [part(calls, view === "icicle" ? "down" : "up", weights)];
    if (view === "inverted") parts = [part(tree("callers", () => callerTree(data, choice)), "down")];
    if (view === "sandwich" && func !== null) {
      const around = (name, make) => tree(`${name} ${func}`, () => make(data, choice, func));
      parts = [part(around("callers", callerTree), "up"), part(around("callees", calleeTree), "down")];
      parts.forEach((part, at) => {
        part.zoom = part.tree.length > 1 ? part.tree.children[0] : 0;
        part.skip = at + 1;
      });
    }
    let path = view === "sandwich" && func === null ? "Select a function in the table." : "";
    if (view === "chart") {
      const { lanes, sight } = timeline;
      const lane = choice.sample === null ? 0 : lanes.lane[lanes.of[choice.sample]];
      parts = [{ tree: calls, lanes, lane, sight, isShown: isChosen(data, choice), grows: "down" }];
      path = `${lanes.name(lane)} from ${seconds(sight[0])} to ${seconds(sight[1])} s, by time. A click in a lane `
        + "shows that lane.";
    } else if (view !== "sandwich") {
      const zoomed = pathTo(parts[0].tree, parts[0].zoom).map((frame) => fullName(data, frame));
      if (zoomed.length) path = `Zoomed to: ${zoomed.join(" › ")}`;
    }
    $("path").textContent = path;
    const { fits, problem } = matcher(choice.search);
    const isFound = fits && data.names.map((_, frame) => fits(fullName(data, frame)));
    $("found").textContent = problem ? `not a regular expression: ${problem}` : fits ? foundText(isFound) : "";
    flame.show(parts, style(isFound));
  }

  /// How much of the samples has a function that was searched for.
  function foundText(isFound) {
    const { calls, weights, base } = now;
    const isInside = new Uint8Array(calls.length);
    let samples = 0;
    for (let node = 1; node < calls.length; node++) {
      const above = isInside[calls.parent[node]];
      isInside[node] = above || isFound[calls.frame[node]] ? 1 : 0;
      if (isInside[node] && !above) samples += weights.total[node];
    }
    return `${amountOf(samples)}, ${percent(samples, base)}`;
  }

  /// How boxes look.
  function style(isFound) {
    const colors = frameColors(data, choice.color);
    const frame = (box) => box.part.tree.frame[box.node];
    // The root has all samples, and what is shown besides them is of no function that is known: they have no change.
    const isComparison = now.old && ((box) => box.part.tree === now.calls && box.node > 0 && !box.part.lanes &&
      !data.besideFrames.includes(frame(box)));
    const changed = ({ part, node }) =>
      changeOfShare(part.weights.total[node], now.counted, now.old.weights.total[node], now.old);
    const text = (box) => (box.node === 0 ? "all" : data.names[frame(box)]);
    /// The functions of a box of joined chains, outermost first.
    const chain = ({ part: { tree }, node, top }) => {
      const frames = [tree.frame[node]];
      while (node !== (top ?? node)) frames.unshift(tree.frame[(node = tree.parent[node])]);
      return frames;
    };
    const exact = (box) => (box.node === 0 ? "all" : chain(box).map((frame) => fullName(data, frame)).join(" › "));
    return {
      text,
      parts: (box) => {
        if (box.node === 0) return { path: "", last: "all" };
        const parts = chain(box).map((frame) => partsOf(data.names[frame]));
        const { path, last } = parts.pop();
        return parts.length ? { path: `${parts.map(({ last }) => last).join(" › ")} › `, last } : { path, last };
      },
      isFaded: (box) => Boolean(isFound) && (box.node === 0 || !isFound[frame(box)]),
      color: (box) => {
        if (box.node === 0) return css(NEUTRAL);
        if (!isComparison || !isComparison(box)) return colors[frame(box)];
        return changeColor(changed(box), isCertain(changeOf(data, frame(box))));
      },
      describe: (box) => {
        if (box.part.lanes) {
          const samples = data.weights ? `${box.samples} hits` : `${box.samples} samples`;
          return `${exact(box)}: ${seconds(box.from)} to ${seconds(box.to)} s, ${samples}`;
        }
        const { total, self } = box.part.weights;
        const own = self[box.node] ? `, self ${amountInText(self[box.node])}` : "";
        const ofTime = now.time ? `, ${percent(total[box.node], now.time)} of all time` : "";
        const shares = `${amountOf(total[box.node])}, ${percent(total[box.node], now.all)}${ofTime}${own}`;
        const change = isComparison && isComparison(box) ? `, change ${points(changed(box))} points` : "";
        const place = box.node ? firstPlace(data, frame(box)) : "";
        return `${exact(box)}: ${shares}${change}${place && `, ${place}`}`;
      },
    };
  }

  /// What is shown besides the samples.
  function besideText({ hits, lost, beside }) {
    if (!data.event) return `, ${amount(lost)} lost`;
    if (data.event.isLive) {
      const when = choice.from === null ? "were not freed" : "were made in this time, and not freed until the end";
      return ` in ${whole.format(hits)} recorded allocations that ${when}`;
    }
    const recorded = ` in ${whole.format(hits)} recorded hits`;
    if ((choice.from !== null || choice.weights) && data.event.beside.length) {
      return `${recorded}; of what was lost or not recorded no time is known`;
    }
    return `${recorded}, ${amountOf(lost)} lost, ${amountOf(beside[1])} not recorded`;
  }

  /// What the older profile has.
  function beforeText(samples) {
    const text = `${amountInText(samples)} (whole recording)`;
    const [lost, unrecorded] = data.old.beside;
    const said = data.event && !data.event.isLive
      ? `${text}, ${amountOf(lost)} lost, ${amountOf(unrecorded)} not recorded` : text;
    return data.event?.beside.length || lost || unrecorded ? `${said}; changes are those of recorded hits` : said;
  }

  function showControls() {
    const { counted } = now;
    const few = choice.weights ? `, hits of ${choice.weights.map(amountOf).join(" to ")}` : "";
    const span = choice.from === null ? "whole recording" : `${seconds(choice.from)} to ${seconds(choice.to)} s`;
    const before = now.old ? `; before: ${beforeText(now.old.samples)}` : "";
    $("summary").textContent = `${span}${few}: ${amountOf(counted.samples)}${besideText(counted)}${before}`;
    const { activeElement } = document;
    for (const [name, value] of [["from", choice.from ?? 0], ["to", choice.to ?? data.end]]) {
      if (activeElement !== $(name)) $(name).value = seconds(value);
    }
    for (const name of ["inline", "view", "color", "chains", "of", "search", "filter"]) {
      if (activeElement !== $(name)) $(name).value = choice[name];
    }
    $("lanesBy").value = choice.lanes;
    const cpus = data.cpus.map((cpu, at) => [cpu, `CPU ${cpu}`, counted.cpus[at]]);
    showSwitches($("cpus"), "hiddenCpus", cpus, choice, change);
    const tasks = data.tasks.map((task, at) => [at, task || "[no name]", counted.tasks[at]]);
    showSwitches($("tasks"), "hiddenTasks", tasks.sort((a, b) => b[2] - a[2]), choice, change);
    [...$("kinds").querySelectorAll("input")].forEach((box, kind) => (box.checked = choice.kinds[kind]));
  }

  function zoomTo(box) {
    if (!box) return;
    flame.selected = flame.placeOf(box);
    const func = box.node ? box.part.tree.frame[box.node] : null;
    const isWhole = ["sandwich", "chart"].includes(choice.view);
    change(isWhole ? { func } : { func, zoom: pathTo(box.part.tree, box.node) });
  }

  function listen() {
    makeKinds(data, change, () => choice);
    makeSplitter();
    $("of").hidden = Boolean(data.event);
    document.body.classList.toggle("wide", Boolean(data.old || data.event));
    for (const name of ["inline", "view", "color", "chains", "of"]) {
      $(name).addEventListener("change", () => change({ [name]: $(name).value, zoom: [] }));
    }
    $("lanesBy").addEventListener("change", () => change({ lanes: $("lanesBy").value }));
    for (const name of ["search", "filter"]) {
      $(name).addEventListener("input", () => change({ [name]: $(name).value }, false));
    }
    for (const name of ["from", "to"]) $(name).addEventListener("change", takeTimes);
    for (const menu of document.querySelectorAll(".menu")) menu.addEventListener("toggle", showControls);
    $("whole").addEventListener("click", () => change({ from: null, to: null, sight: null }));
    $("reset").addEventListener("click", () => {
      flame.selected = null;
      change(defaultChoice(data));
    });
    const saving = { folded: ["profile.folded", "text/plain", () => window.kprof.folded()],
      svg: ["flamegraph.svg", "image/svg+xml", () => svgText(flame, data.title, $("summary").textContent)],
      samples: ["samples.tsv", "text/tab-separated-values", () => samplesText(data, now.calls, choice)] };
    for (const [id, [name, type, make]] of Object.entries(saving)) {
      $(id).addEventListener("click", () => save(name, type, make()));
    }
    const canvas = $("flame");
    canvas.addEventListener("mousemove", (event) => hover(flame.at(event), event));
    canvas.addEventListener("mouseleave", () => hover(null));
    canvas.addEventListener("click", (event) => zoomTo(flame.at(event)));
    const lanes = $("timeline");
    lanes.addEventListener("pointermove", (event) => {
      timeline.pointer = timeline.micros(event);
      said(timeline.describe(event), event);
    });
    lanes.addEventListener("pointerleave", () => {
      timeline.pointer = null;
      said("");
    });
    lanes.addEventListener("focus", () => said($("timeKeys").textContent));
    // The focus must not scroll what is clicked away from the pointer.
    for (const one of [canvas, lanes]) {
      one.addEventListener("mousedown", (event) => {
        event.preventDefault();
        one.focus({ preventScroll: true });
      });
    }
    // The splitter changes the width of the picture.
    new ResizeObserver(() => requestAnimationFrame(() => flame.resize())).observe($("scroll"));
    new ResizeObserver(() => requestAnimationFrame(() => timeline.draw())).observe($("lanes"));
    document.addEventListener("keydown", key);
    document.addEventListener("copy", copy);
    addEventListener("resize", show);
    isDark.addEventListener("change", show);
    addEventListener("popstate", () => {
      choice = fromFragment(location.hash.slice(1), data);
      address = location.hash;
      show();
    });
  }

  function hover(box, event) {
    flame.hover(box);
    said(box ? flame.style.describe(box) : "", event);
  }

  /// Takes the range that was typed; what is not a range is put back.
  function takeTimes({ target }) {
    const [from, to] = ["from", "to"].map((name) => Math.round(Number($(name).value) * 1e6));
    target.blur();
    if (from >= 0 && to > from) change({ from, to });
    else show();
  }

  /// Copies the full name of the selected function if no text is selected.
  function copy(event) {
    if (choice.func === null || String(getSelection()) || isTyping(document.activeElement)) return;
    event.clipboardData.setData("text/plain", fullName(data, choice.func));
    event.preventDefault();
  }

  const isTyping = ({ tagName, type }) => ["INPUT", "SELECT", "TEXTAREA"].includes(tagName) && type !== "checkbox";

  /// Goes out by one level.
  function escape() {
    if (choice.zoom.length) change({ zoom: choice.zoom.slice(0, -1) });
    else if (choice.sample !== null) change({ sample: null });
    else if (choice.from !== null) change({ from: null, to: null });
    else if (choice.weights) change({ weights: null });
    else if (choice.sight) look(null);
    else if (choice.func !== null) change({ func: null });
  }

  function key(event) {
    const { target } = event;
    const typing = isTyping(target);
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (key === "Escape") {
      if (typing) target.blur();
      if (target === $("search")) change({ search: "" });
      else escape();
      return;
    }
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = { w: [0.7, 0], s: [1 / 0.7, 0], a: [1, -0.2], d: [1, 0.2] };
    if (key === "/") {
      event.preventDefault();
      $("search").focus();
    } else if (moves[key]) timeline.zoom(...moves[key]);
    else if (key === "z" && choice.from !== null) look(timeline.within(choice.from, choice.to - choice.from));
    else if (target === $("flame") && key.startsWith("Arrow")) {
      event.preventDefault();
      const box = flame.neighbour(key);
      flame.select(box);
      said(box ? flame.style.describe(box) : "");
    } else if (target === $("flame") && key === "Enter") zoomTo(flame.boxes.find((box) => flame.isSelected(box)));
    else if (target === $("timeline")) laneKey(event, key);
  }

  /// Keys in the lanes: arrows go to other samples, Enter shows the flame chart.
  function laneKey(event, key) {
    const { lanes } = timeline;
    if (key === "Enter") return change({ view: choice.view === "chart" ? "flame" : "chart", zoom: [] });
    if (!key.startsWith("Arrow") || !data.samples.time.length) return;
    event.preventDefault();
    if (choice.sample === null) return timeline.told.pick(lanes.nearest(0, timeline.sight[0]));
    if (key === "ArrowLeft" || key === "ArrowRight") return step(key === "ArrowLeft" ? -1 : 1);
    const lane = lanes.lane[lanes.of[choice.sample]] + (key === "ArrowUp" ? -1 : 1);
    if (lane >= 0 && lane < lanes.length) timeline.told.pick(lanes.nearest(lane, data.samples.time[choice.sample]));
  }

  document.querySelector("main").hidden = false;
  listen();
  show();
  keep(false);
  // For scripts that drive the page, and for its tests. `millis` is how long opening has taken.
  const millis = performance.now();
  /// The colors of states, and those that have labels on them.
  const palette = () => {
    const changes = [1, 0.01, -0.01, -1].flatMap((size) => [true, false].map((is) => changeColor(size, is)));
    const frames = ["kind", "crate", "module"].flatMap((by) => frameColors(data, by));
    const labels = [...new Set([css(NEUTRAL), ...frames, ...changes])];
    return { kinds: KIND_COLORS.map((color) => css(color)), labels, pathAlpha: PATH_ALPHA };
  };
  window.kprof = { millis, data, palette, partsOf, homeOf, change, flame, timeline, get now() { return now; },
    get choice() { return choice; }, ticks: () => ticksByKind(data, choice),
    histogram, folded: () => foldedText(data, now.calls, now.weights) };
}

start().catch((error) => {
  $("failure").hidden = false;
  $("failure").textContent =
    `The data of this page cannot be shown: ${error.message}. The page needs a browser of 2023 or later.`;
});
