// The controls around the pictures: the strip of all the time, the switches, the splitter, the text at the pointer. In:
// the page's choice and numbers. Out: elements; what a user does with them changes the choice.

const $ = (id) => document.getElementById(id);

/// Where all the time of the chosen range and CPUs went. Each part is a switch of its kind of samples.
function showStrip(choice, ticks, change) {
  const strip = $("strip");
  const focused = [...strip.children].indexOf(document.activeElement);
  const all = ticks.reduce((sum, one) => sum + one, 0);
  const parts = [...KINDS, "lost"].map((name, kind) => {
    const share = percent(ticks[kind], all);
    const isShown = kind === LOST || choice.kinds[kind];
    const part = element(kind < LOST ? "button" : "span", { title: `${name} ${share} of all time` });
    if (kind < LOST) {
      part.type = "button";
      part.ariaPressed = String(isShown);
      part.onclick = () => change({ kinds: toggled(choice.kinds, kind), zoom: [] });
    } else part.role = "img";
    part.textContent = ticks[kind] > 0.1 * all ? `${name} ${share}` : "\u00a0";
    part.ariaLabel = part.title;
    part.style.flexGrow = ticks[kind];
    part.style.background = css(KIND_COLORS[kind]);
    part.style.color = inkOn(KIND_COLORS[kind]);
    part.className = isShown ? "" : "off";
    return ticks[kind] > 0 ? part : null;
  });
  strip.replaceChildren(...parts.filter(Boolean));
  strip.children[focused]?.focus();
}

const toggled = (list, at) => list.map((is, place) => (place === at ? !is : is));

/// A list of switches, one for each CPU or task. `hidden` is the name of the set of those that are off.
function showSwitches(list, hidden, entries, choice, change) {
  // A closed list is filled when it is opened.
  if (!list.parentElement.open) return;
  const focused = [...list.querySelectorAll("input, button")].indexOf(document.activeElement);
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
  list.replaceChildren(list.querySelector("legend"), all([]), all(entries.map(([key]) => key)), ...boxes);
  list.querySelectorAll("input, button")[focused]?.focus();
}

/// A square of a color, which follows the scheme.
function swatchOf(color) {
  const swatch = element("span", { className: "swatch" });
  const paint = () => (swatch.style.background = color());
  isDark.addEventListener("change", paint);
  paint();
  return swatch;
}

/// The switches of the kinds of samples.
function makeKinds(data, change, choice) {
  KINDS.forEach((name, kind) => {
    const box = element("input", { type: "checkbox" });
    box.addEventListener("change", () => change({ kinds: toggled(choice().kinds, kind), zoom: [] }));
    // An event does not say whether interrupts were on, so only what is known is offered.
    const isHidden = Boolean(data.event) && !data.stacks.kind.includes(kind);
    $("kinds").append(element("label", { hidden: isHidden }, box, swatchOf(() => css(KIND_COLORS[kind])), name));
  });
  if (data.event) $("kinds").querySelector("legend").textContent = data.event.isLive ? "Allocated in" : "Hits in";
}

/// What the colors of the graph mean: kinds, changes, or the crates or modules with the most samples.
function showLegend(data, { color, view }, functions) {
  let items;
  if (data.old && view !== "chart") {
    items = [["grew", () => changeColor(0.04, true)], ["shrank", () => changeColor(-0.04, true)],
      [data.event ? "not certain" : "may be chance", () => changeColor(0.04, false)],
      ["same", () => changeColor(0, false)]];
  } else if (color === "kind") {
    items = Object.entries(FRAME_COLORS).filter(([name]) => isInLegend(data, name))
      .map(([name, color]) => [name === "unrecorded" ? "not recorded" : name, () => css(color)]);
  } else {
    const sums = new Map();
    data.names.forEach((name, frame) => {
      const home = name.startsWith("[") ? null : homeOf(name, color === "module");
      if (home !== null && functions.self[frame]) sums.set(home, (sums.get(home) ?? 0) + functions.self[frame]);
    });
    const most = [...sums].sort((a, b) => b[1] - a[1]).slice(0, 8);
    items = most.map(([home]) => [home || "no path", () => homeColor(home)]);
  }
  $("legend").replaceChildren(...items.map(([name, color]) => {
    const item = element("li", {}, element("span", { className: "swatch" }), name);
    item.firstChild.style.background = color();
    return item;
  }));
}

/// Whether a kind of frame can be there. What is not known of a heap is said at the top.
function isInLegend(data, name) {
  if (name === "unrecorded") return Boolean(data.event) && !data.event.isLive;
  return name !== "lost" || !data.event?.isLive;
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

/// The border between table and graph is moved by a drag, or by the arrow keys.
function makeSplitter() {
  const splitter = $("splitter");
  const set = (percent) => {
    const width = Math.min(75, Math.max(15, percent));
    $("list").style.width = `${width}%`;
    splitter.ariaValueNow = String(Math.round(width));
  };
  splitter.addEventListener("pointerdown", (event) => splitter.setPointerCapture(event.pointerId));
  splitter.addEventListener("pointermove", (event) => {
    const { left, width } = $("work").getBoundingClientRect();
    if (event.buttons) set(((event.clientX - left) / width) * 100);
  });
  splitter.addEventListener("keydown", ({ key }) => {
    const step = { ArrowLeft: -3, ArrowRight: 3 }[key];
    if (step) set(Number(splitter.ariaValueNow) + step);
  });
}
