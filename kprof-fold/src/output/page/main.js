// The page as a whole: every action changes the choice, and the choice is then drawn. In: events. Out: calls of all
// parts in this order: count, weigh, draw; and the fragment of the address, which can be shared.

const $ = (id) => document.getElementById(id);

async function start() {
  const data = await readData();
  setUnit(data);
  let choice = fromFragment(location.hash.slice(1), data);
  const flame = new Flame($("flame"), $("scroll"), $("height"));
  const timeline = new Timeline($("timeline"), $("scale"), data, (from, to) => change({ from, to }));
  const chosen = (func) => change({ func });
  const table = new FunctionTable($("functions"), $("more"), $("shown"), data, chosen, (sort) => change({ sort }));
  /// The trees for the present choice of frames, made when they are needed.
  let trees = new Map();
  let treesKey = "";
  let now = {};
  let addressing;

  function tree(name, make) {
    const key = [choice.inline, choice.kinds[USER]].join();
    if (key !== treesKey) [trees, treesKey] = [new Map(), key];
    if (!trees.has(name)) trees.set(name, make());
    return trees.get(name);
  }

  function change(what) {
    Object.assign(choice, what);
    show();
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
    now = { counted, calls, weights, functions, all, old, choice };
    timeline.show(choice.from === null ? null : choice, choice.hiddenCpus);
    showFlame();
    table.show(now);
    showDetail($("detail"), data, now, chosen, (view) => change({ view, zoom: [] }));
    showStrip();
    showControls();
    // Browsers limit how often the address may be changed.
    clearTimeout(addressing);
    addressing = setTimeout(() => history.replaceState(null, "", `#${toFragment(choice, data)}`), 250);
    now.millis = performance.now() - began;
  }

  function showFlame() {
    const { counted, weights, calls } = now;
    const { view, func } = choice;
    const part = (tree, grows, weighed) =>
      ({ tree, grows, weights: weighed ?? weigh(tree, counted.counts, counted.beside),
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
    const { fits, problem } = matcher(choice.search);
    const isFound = fits && data.names.map((_, frame) => fits(fullName(data, frame)));
    $("found").textContent = problem ? `not a regular expression: ${problem}` : fits ? foundText(isFound) : "";
    flame.show(parts, style(isFound));
    const zoomed = pathTo(parts[0].tree, parts[0].zoom).map((frame) => fullName(data, frame));
    $("path").textContent = view === "sandwich" && func === null ? "Select a function in the table."
      : view !== "sandwich" && zoomed.length ? `Zoomed to: ${zoomed.join(" › ")}` : "";
  }

  /// Where all the time of the chosen range and CPUs went. Each part is a switch of its kind of samples.
  function showStrip() {
    $("strip").hidden = Boolean(data.event);
    if (data.event) return;
    const ticks = timeline.ticks(choice);
    const all = ticks.reduce((sum, one) => sum + one, 0);
    const parts = [...KINDS, "lost"].map((name, kind) => {
      const share = percent(ticks[kind], all);
      const isShown = kind === KINDS.length || choice.kinds[kind];
      const part = element(kind < KINDS.length ? "button" : "span", { title: `${name}: ${share} of all time` });
      if (kind < KINDS.length) {
        part.type = "button";
        part.ariaPressed = String(isShown);
        part.onclick = () => change({ kinds: choice.kinds.map((is, at) => (at === kind ? !is : is)), zoom: [] });
      }
      part.ariaLabel = part.title;
      part.style.flexGrow = ticks[kind];
      part.style.background = css(KIND_COLORS[kind]);
      part.className = isShown ? "" : "off";
      return ticks[kind] > 0 ? part : null;
    });
    $("strip").replaceChildren(...parts.filter(Boolean));
  }

  /// How much of the samples has a function that was searched for.
  function foundText(isFound) {
    const { calls, weights, all } = now;
    const isInside = new Uint8Array(calls.length);
    let samples = 0;
    for (let node = 1; node < calls.length; node++) {
      const above = isInside[calls.parent[node]];
      isInside[node] = above || isFound[calls.frame[node]] ? 1 : 0;
      if (isInside[node] && !above) samples += weights.total[node];
    }
    return `${amountOf(samples)}, ${percent(samples, all)}`;
  }

  /// How boxes look.
  function style(isFound) {
    const colors = frameColors(data);
    const frame = (box) => box.part.tree.frame[box.node];
    // The root has all samples, and what is shown besides them is of no function that is known: they have no change.
    const isComparison = now.old && ((box) => box.part.tree === now.calls && box.node > 0 &&
      !data.besideFrames.includes(frame(box)));
    const changed = ({ part, node }) =>
      changeOfShare(part.weights.total[node], now.counted, now.old.weights.total[node], now.old);
    const text = (box) => (box.node === 0 ? "all" : data.names[frame(box)]);
    const exact = (box) => (box.node === 0 ? "all" : fullName(data, frame(box)));
    return {
      text,
      isFaded: (box) => Boolean(isFound) && (box.node === 0 || !isFound[frame(box)]),
      color: (box) => {
        if (box.node === 0) return css(NEUTRAL);
        if (!isComparison || !isComparison(box)) return colors[frame(box)];
        return changeColor(changed(box), isCertain(changeOf(data, frame(box))));
      },
      describe: (box) => {
        const { total, self } = box.part.weights;
        const own = self[box.node] ? `, self ${amountInText(self[box.node])}` : "";
        const shares = `${amountOf(total[box.node])}, ${percent(total[box.node], now.all)}${own}`;
        const change = isComparison && isComparison(box) ? `, change ${points(changed(box))} points` : "";
        return `${exact(box)}: ${shares}${change}`;
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
    if (choice.from !== null && data.event.beside.length) {
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
    const span = choice.from === null ? "whole recording" : `${seconds(choice.from)} to ${seconds(choice.to)} s`;
    const before = now.old ? `; before: ${beforeText(now.old.samples)}` : "";
    $("summary").textContent = `${span}: ${amountOf(counted.samples)}${besideText(counted)}${before}`;
    $("from").value = seconds(choice.from ?? 0);
    $("to").value = seconds(choice.to ?? data.end);
    for (const name of ["inline", "view", "search", "filter"]) {
      if (document.activeElement !== $(name)) $(name).value = choice[name];
    }
    showList($("cpus"), "hiddenCpus", data.cpus.map((cpu, at) => [cpu, `CPU ${cpu}`, counted.cpus[at]]));
    const tasks = data.tasks.map((task, at) => [at, task || "[no name]", counted.tasks[at]]);
    showList($("tasks"), "hiddenTasks", tasks.sort((a, b) => b[2] - a[2]));
    [...$("kinds").querySelectorAll("input")].forEach((box, kind) => (box.checked = choice.kinds[kind]));
  }

  /// A list of switches, one for each CPU or task. `hidden` is the name of the set of those that are off.
  function showList(list, hidden, entries) {
    // A closed list is filled when it is opened.
    if (!list.parentElement.open) return;
    const boxes = entries.map(([key, name, samples]) => {
      const box = element("input", { type: "checkbox", checked: !choice[hidden].has(key) });
      box.addEventListener("change", () => {
        const off = new Set(choice[hidden]);
        if (box.checked) off.delete(key);
        else off.add(key);
        change({ [hidden]: off });
      });
      return element("label", {}, box, ` ${name} (${amountInText(samples)})`);
    });
    const all = (keys) => element("button", { type: "button", textContent: keys.length ? "None" : "All",
      onclick: () => change({ [hidden]: new Set(keys) }) });
    const legend = list.querySelector("legend");
    list.replaceChildren(legend, all([]), all(entries.map(([key]) => key)), ...boxes);
  }

  function zoomTo(box) {
    if (!box) return;
    flame.selected = { part: flame.parts.indexOf(box.part), node: box.node };
    const func = box.node ? box.part.tree.frame[box.node] : null;
    change(choice.view === "sandwich" ? { func } : { func, zoom: pathTo(box.part.tree, box.node) });
  }

  /// A square of a color, which follows the scheme.
  function swatchOf(color) {
    const swatch = element("span", { className: "swatch" });
    const paint = () => (swatch.style.background = color());
    isDark.addEventListener("change", paint);
    paint();
    return swatch;
  }

  /// Whether a kind of frame can be there. What is not known of a heap is said at the top.
  function isInLegend(name) {
    if (name === "unrecorded") return Boolean(data.event) && !data.event.isLive;
    return name !== "lost" || !data.event?.isLive;
  }

  function listen() {
    KINDS.forEach((name, kind) => {
      const box = element("input", { type: "checkbox" });
      box.addEventListener("change", () =>
        change({ kinds: choice.kinds.map((is, at) => (at === kind ? box.checked : is)), zoom: [] }));
      const swatch = swatchOf(() => css(KIND_COLORS[kind]));
      // An event does not say whether interrupts were on, so only what is known is offered.
      const isHidden = Boolean(data.event) && !data.stacks.kind.includes(kind);
      $("kinds").append(element("label", { hidden: isHidden }, box, swatch, name));
    });
    if (data.event) $("kinds").querySelector("legend").textContent = data.event.isLive ? "Allocated in" : "Hits in";
    const legend = data.old
      ? [["grew", () => changeColor(0.04, true)], ["shrank", () => changeColor(-0.04, true)],
        [data.event ? "not certain" : "may be chance", () => changeColor(0.04, false)],
        ["same", () => changeColor(0, false)]]
      : Object.entries(FRAME_COLORS).filter(([name]) => isInLegend(name))
        .map(([name, color]) => [name === "unrecorded" ? "not recorded" : name, () => css(color)]);
    $("legend").replaceChildren(...legend.map(([name, color]) => element("li", {}, swatchOf(color), name)));
    for (const name of ["inline", "view"]) {
      $(name).addEventListener("change", () => change({ [name]: $(name).value, zoom: [] }));
    }
    for (const name of ["search", "filter"]) $(name).addEventListener("input", () => change({ [name]: $(name).value }));
    for (const name of ["from", "to"]) $(name).addEventListener("change", takeTimes);
    for (const menu of document.querySelectorAll(".menu")) menu.addEventListener("toggle", showControls);
    $("whole").addEventListener("click", () => change({ from: null, to: null }));
    $("reset").addEventListener("click", () => {
      choice = defaultChoice(data);
      flame.selected = null;
      show();
    });
    $("folded").addEventListener("click", () =>
      save("profile.folded", "text/plain", window.kprof.folded()));
    $("svg").addEventListener("click", () =>
      save("flamegraph.svg", "image/svg+xml", svgText(flame, data.title, $("summary").textContent)));
    const canvas = $("flame");
    canvas.addEventListener("mousemove", (event) => hover(flame.at(event), event));
    canvas.addEventListener("mouseleave", () => hover(null));
    const lanes = $("timeline");
    lanes.addEventListener("pointermove", (event) => said(timeline.describe(event), event));
    lanes.addEventListener("pointerleave", () => said(""));
    // The splitter changes the width of the picture.
    new ResizeObserver(() => requestAnimationFrame(() => flame.resize())).observe($("scroll"));
    canvas.addEventListener("click", (event) => zoomTo(flame.at(event)));
    document.addEventListener("keydown", key);
    addEventListener("resize", show);
    isDark.addEventListener("change", show);
    addEventListener("hashchange", () => {
      choice = fromFragment(location.hash.slice(1), data);
      show();
    });
  }

  function hover(box, event) {
    flame.hover(box);
    said(box ? flame.style.describe(box) : "", event);
  }

  /// Shows a text in the status bar, and at the pointer if it is there.
  function said(text, event) {
    $("hover").textContent = text || "\u00a0";
    const tip = $("tip");
    tip.hidden = !text || !event || event.buttons > 0;
    if (tip.hidden) return;
    tip.textContent = text;
    const { width, height } = tip.getBoundingClientRect();
    const x = Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 4));
    const y = event.clientY + 18 + height > innerHeight ? event.clientY - 10 - height : event.clientY + 18;
    tip.style.transform = `translate(${x}px, ${y}px)`;
  }

  /// Takes the range that was typed; what is not a range is put back.
  function takeTimes() {
    const [from, to] = ["from", "to"].map((name) => Math.round(Number($(name).value) * 1e6));
    if (from >= 0 && to > from) change({ from, to });
    else show();
  }

  function key(event) {
    const isTyping = ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName) && event.target.type !== "checkbox";
    if (event.key === "Escape") {
      if (isTyping) event.target.blur();
      if (event.target === $("search")) change({ search: "" });
      else if (choice.zoom.length) change({ zoom: choice.zoom.slice(0, -1) });
      else if (choice.from !== null) change({ from: null, to: null });
    } else if (isTyping || event.ctrlKey || event.metaKey || event.altKey) {
      return;
    } else if (event.key === "/") {
      event.preventDefault();
      $("search").focus();
    } else if (event.target === $("flame") && event.key.startsWith("Arrow")) {
      event.preventDefault();
      const box = flame.neighbour(event.key);
      flame.select(box);
      said(box ? flame.style.describe(box) : "");
    } else if (event.target === $("flame") && event.key === "Enter") {
      zoomTo(flame.boxes.find((box) => flame.isSelected(box)));
    }
  }

  document.querySelector("main").hidden = false;
  listen();
  show();
  // For scripts that drive the page, and for its tests. `millis` is how long opening has taken.
  const millis = performance.now();
  /// The colors of states, and those that have labels on them.
  const palette = () => {
    const changes = [1, 0.01, -0.01, -1].flatMap((size) => [true, false].map((is) => changeColor(size, is)));
    const labels = [...new Set([css(NEUTRAL), ...frameColors(data), ...changes])];
    return { kinds: KIND_COLORS.map((color) => css(color)), labels };
  };
  window.kprof = { millis, data, palette, get now() { return now; }, get choice() { return choice; }, change, flame,
    timeline,
    folded: () => foldedText(data, now.calls, now.weights) };
}

start().catch((error) => {
  $("failure").hidden = false;
  $("failure").textContent =
    `The data of this page cannot be shown: ${error.message}. The page needs a browser of 2023 or later.`;
});
