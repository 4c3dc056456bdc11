// The lanes as a picture. In: the parts of time of `lanes.js`, marks, the range in sight, the chosen range and sample.
// Out: a canvas of the lanes in sight, and above it an overview of the whole recording with the time axis. Wheel, pinch
// and keys change the range in sight, a drag chooses a range, a click chooses a sample. The height of a lane is time;
// where nothing is known it is empty. Hits of a point are as high as they weigh: the heaviest column has all of it.

const LANE = 22;
const OVERVIEW = 12;
const AXIS = 18;
/// The shortest range in sight, in microseconds.
const SHORTEST = 20;
/// So many pixels around a sample belong to it.
const NEAR = 3;

/// A color as the four bytes of a pixel.
function pixelOf(color, over, alpha = 1) {
  const context = pixelOf.context ??= document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  context.globalAlpha = 1;
  context.fillStyle = over ?? color;
  context.fillRect(0, 0, 1, 1);
  context.globalAlpha = alpha;
  context.fillStyle = color;
  context.fillRect(0, 0, 1, 1);
  return new Uint32Array(context.getImageData(0, 0, 1, 1).data.buffer)[0];
}

const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

/// A canvas that is cleared, in the pixels of the device.
function cleared(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = FONT;
  context.textBaseline = "middle";
  return context;
}

class Timeline {
  /// `places` are elements of the page. `told` has what is called: `select` with a new range and whether it is
  /// the first of a drag, `look` with a new range in sight, `pick` with a sample.
  constructor(places, data, told) {
    Object.assign(this, { ...places, data, told, range: null, sample: null, pointers: new Map() });
    const { canvas, overview } = this;
    const whole = (event) => this.told.look(event.buttons ? this.centered(event) : null);
    for (const one of [canvas, overview]) {
      one.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    }
    overview.addEventListener("pointerdown", (event) => {
      overview.setPointerCapture(event.pointerId);
      whole(event);
    });
    overview.addEventListener("pointermove", (event) => event.buttons && whole(event));
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.pointers.set(event.pointerId, event);
      this.drag = this.pointers.size === 1 ? { from: this.micros(event), x: event.clientX } : null;
      this.pinch = [...this.pointers.values()].map((one) => this.micros(one));
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.pointers.has(event.pointerId)) return;
      this.pointers.set(event.pointerId, event);
      if (this.pointers.size === 2) this.pinched();
      else if (this.drag) this.dragged(event, false);
    });
    canvas.addEventListener("pointerup", (event) => {
      this.pointers.delete(event.pointerId);
      const { drag } = this;
      this.drag = null;
      if (!drag) return;
      if (drag.isMoved) return this.dragged(event, true, drag);
      const sample = this.sampleOf(event);
      if (sample >= 0) this.told.pick(sample);
    });
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("dblclick", () => this.told.select(null, null, true));
    this.scroll.addEventListener("scroll", () => this.draw());
  }

  /// What of the whole recording is in sight.
  get sight() {
    return this.looked ?? [0, this.data.end];
  }

  micros(event) {
    const [from, to] = this.sight;
    const x = event.clientX - this.canvas.getBoundingClientRect().left - this.left;
    return Math.round(from + Math.min(1, Math.max(0, x / (this.width - this.left))) * (to - from));
  }

  x(micros, [from, to] = this.sight) {
    return this.left + ((micros - from) / (to - from)) * (this.width - this.left);
  }

  /// The range in sight around the time of the overview that the pointer is at.
  centered(event) {
    const [from, to] = this.sight;
    const x = event.clientX - this.canvas.getBoundingClientRect().left - this.left;
    return this.within((x / (this.width - this.left)) * this.data.end - (to - from) / 2, to - from);
  }

  /// A range of this width within the recording; null if it is the whole recording.
  within(from, width) {
    const { end } = this.data;
    const wide = Math.min(end, Math.max(SHORTEST, width));
    const begin = Math.round(Math.min(Math.max(0, from), end - wide));
    return wide >= end ? null : [begin, Math.round(begin + wide)];
  }

  /// Changes the range in sight: `factor` below 1 zooms in around a time, `shift` moves it by a part of its width.
  zoom(factor, shift = 0, at = this.middle()) {
    const [from, to] = this.sight;
    this.told.look(this.within(at - (at - from) * factor + shift * (to - from), (to - from) * factor));
  }

  /// The pointer's time if it is over the lanes, else the middle of what is in sight.
  middle() {
    const [from, to] = this.sight;
    return this.pointer ?? (from + to) / 2;
  }

  wheel(event) {
    event.preventDefault();
    const { deltaX, deltaY, shiftKey, ctrlKey } = event;
    const isSideways = shiftKey || Math.abs(deltaX) > Math.abs(deltaY);
    if (isSideways) this.zoom(1, (deltaX || deltaY) / this.width);
    else this.zoom(Math.exp(deltaY * (ctrlKey ? 0.01 : 0.002)), 0, this.micros(event));
  }

  /// Two fingers keep the times that they are at.
  pinched() {
    const [one, other] = [...this.pointers.values()].map((event) => event.clientX).sort((a, b) => a - b);
    const [from, to] = [...this.pinch].sort((a, b) => a - b);
    const left = this.canvas.getBoundingClientRect().left + this.left;
    const scale = (to - from) / Math.max(1, other - one);
    this.told.look(this.within(from - (one - left) * scale, scale * (this.width - this.left)));
  }

  dragged(event, isDone, drag = this.drag) {
    drag.isMoved ||= Math.abs(event.clientX - drag.x) > NEAR;
    if (!drag.isMoved) return;
    const to = this.micros(event);
    const [from, end] = [Math.min(drag.from, to), Math.max(drag.from, to)];
    cancelAnimationFrame(this.frame);
    const tell = () => {
      this.told.select(from, Math.max(end, from + 1), !drag.isTold);
      drag.isTold = true;
    };
    if (isDone) tell();
    else this.frame = requestAnimationFrame(tell);
  }

  laneOf(event) {
    const y = event.clientY - this.canvas.getBoundingClientRect().top + this.scroll.scrollTop;
    return Math.min(this.lanes.length - 1, Math.floor(y / LANE));
  }

  /// The sample under the pointer; -1 if there is none.
  sampleOf(event) {
    const [from, to] = this.sight;
    return this.lanes.sampleAt(this.laneOf(event), this.micros(event), ((to - from) / this.width) * NEAR);
  }

  /// What the lane under the pointer did at that time: the parts of this column of pixels, and the sampled function.
  describe(event) {
    const [lane, at] = [this.laneOf(event), this.micros(event)];
    if (lane < 0 || !this.columns) return "";
    const [from, to] = this.sight;
    const column = (to - from) / this.columns;
    const first = from + Math.floor((at - from) / column) * column;
    const { parts, isTime } = this.lanes.parts(first, first + column, 1, lane, 1);
    const sum = sumOf(parts, 0);
    const of = isTime ? Math.max(1, sum) : sum || 1;
    const shares = [...KINDS, "lost"].map((name, kind) => [parts[kind] / of, name])
      .filter(([part]) => part >= 0.005).sort((a, b) => b[0] - a[0])
      .map(([part, name]) => `${Math.round(part * 100)} % ${name}`);
    const weight = this.data.weights && sum > 0 ? `${amountOf(sum)}, ` : "";
    const sample = this.sampleOf(event);
    const name = sample < 0 ? "" : `, ${this.told.nameOf(sample)}`;
    const nothing = this.lanes.by === "cpu" ? "no tick" : "no sample";
    return `${this.lanes.name(lane)}, ${secondsIn(at, to - from)} s: ${weight}${shares.join(", ") || nothing}${name}`;
  }

  /// Draws a choice. `isMarked` has the stacks of the function that is selected.
  show(choice, isMarked) {
    const { data } = this;
    const { from, to, sight, lanes, hiddenCpus, sample } = choice;
    if (this.lanes?.by !== lanes) this.lanes = new Lanes(data, lanes);
    Object.assign(this, { range: from === null ? null : { from, to }, looked: sight, hiddenCpus, sample, isMarked });
    this.left = lanes === "cpu" ? 64 : 120;
    const height = this.lanes.length * LANE;
    this.spacer.style.height = `${height}px`;
    if (sample !== null && sample !== this.seen) {
      const y = this.lanes.lane[this.lanes.of[sample]] * LANE;
      const { scrollTop, clientHeight } = this.scroll;
      if (y < scrollTop || y + LANE > scrollTop + clientHeight) this.scroll.scrollTop = y - clientHeight / 2;
    }
    this.seen = sample;
    this.draw();
  }

  draw() {
    if (!this.lanes) return;
    const { scroll, canvas, left, lanes } = this;
    // A scroll bar makes the lanes narrower.
    this.width = scroll.clientWidth;
    const height = Math.max(LANE, Math.min(lanes.length * LANE, scroll.clientHeight));
    const first = Math.floor(scroll.scrollTop / LANE);
    const count = Math.min(lanes.length - first, Math.ceil(height / LANE) + 1);
    const [from, to] = this.sight;
    const key = [this.width, from, to, first, count, isDark.matches, lanes.by, devicePixelRatio].join();
    if (key !== this.key || this.isMarked !== this.wasMarked) {
      [this.key, this.wasMarked] = [key, this.isMarked];
      this.columns = Math.max(1, Math.floor((this.width - left) * (devicePixelRatio || 1)));
      this.image = this.drawn(lanes, first, count, [from, to], Math.round(LANE * (devicePixelRatio || 1)), true);
      const column = seconds((to - from) / this.columns);
      const when = this.data.event?.isLive ? " Each allocation is at the time at which it was made." : "";
      if (this.data.weights) this.scale.textContent = `Full height: ${amountOf(this.most)} in ${column} s.${when}`;
    }
    const context = cleared(canvas, this.width, height);
    const y = first * LANE - scroll.scrollTop;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, left, y, this.width - left, count * LANE);
    const [ink, soft, mark] = ["--text", "--soft", "--mark"].map(variable);
    for (let lane = first; lane < first + count; lane++) {
      const isHidden = lanes.by === "cpu" && this.hiddenCpus.has(this.data.cpus[lanes.order[lane]]);
      context.fillStyle = isHidden ? soft : ink;
      context.fillText(lanes.name(lane).slice(0, left >> 3), 0, y + (lane - first) * LANE + LANE / 2);
    }
    context.fillStyle = mark;
    for (const [at] of this.data.marks) if (at >= from && at <= to) context.fillRect(this.x(at), 0, 1, height);
    this.drawRange(context, 0, height, [from, to]);
    this.drawSample(context, mark, first, y);
    this.drawOverview(soft, mark);
  }

  /// The lanes as pixels. What is not marked is pale if a function is marked. Lost time is hatched.
  drawn(lanes, first, count, [from, to], high, isMarkable) {
    const { columns } = this;
    const isMarked = isMarkable ? this.isMarked : null;
    const { parts, isTime } = lanes.parts(from, to, columns, first, count, isMarked);
    const back = variable("--back");
    const colors = KIND_COLORS.map((color) => pixelOf(css(color), back, isMarked ? 0.3 : 1));
    const [blank, mark] = [pixelOf(back), pixelOf(variable("--mark"))];
    let most = 0;
    if (this.data.weights) for (let at = 0; at < parts.length; at += SIZE) most = Math.max(most, sumOf(parts, at));
    if (isMarkable) this.most = most;
    const image = new ImageData(columns, count * high);
    const pixels = new Uint32Array(image.data.buffer);
    const full = high - Math.max(2, Math.round(high / 8));
    for (let at = 0; at < count * columns; at++) {
      const sum = sumOf(parts, at * SIZE);
      if (sum === 0) continue;
      const [lane, column] = [Math.floor(at / columns), at % columns];
      // A hit of any weight can be seen.
      const scale = most ? Math.max(1, (sum / most) * full) / sum : full / (isTime ? Math.max(lanes.most, sum) : sum);
      const bottom = (lane + 1) * high - 1;
      let [done, edge] = [0, 0];
      for (let kind = 0; kind <= LOST; kind++) {
        edge += parts[at * SIZE + kind] * scale;
        for (; done < Math.round(edge); done++) {
          const isGap = kind === LOST && (column + bottom - done) % 5 > 2;
          pixels[(bottom - done) * columns + column] = isGap ? blank : colors[kind];
        }
      }
      const lit = isMarked ? Math.ceil(parts[at * SIZE + LOST + 1] * scale - 0.01) : 0;
      for (let up = 0; up < lit; up++) pixels[(bottom - up) * columns + column] = mark;
    }
    const canvas = new OffscreenCanvas(columns, Math.max(1, count * high));
    canvas.getContext("2d").putImageData(image, 0, 0);
    return canvas;
  }

  /// Makes what is outside of the chosen range pale.
  drawRange(context, top, bottom, sight) {
    if (!this.range) return;
    const clip = (micros) => Math.min(this.width, Math.max(this.left, this.x(micros, sight)));
    const [from, to] = [clip(this.range.from), clip(this.range.to)];
    context.fillStyle = variable("--back");
    context.globalAlpha = 0.65;
    context.fillRect(this.left, top, from - this.left, bottom - top);
    context.fillRect(to, top, this.width - to, bottom - top);
    context.globalAlpha = 1;
    context.strokeStyle = variable("--mark");
    context.strokeRect(from, top + 0.5, Math.max(to - from, 1), bottom - top - 1);
  }

  /// A frame around the chosen sample.
  drawSample(context, mark, first, y) {
    if (this.sample === null) return;
    const { lanes } = this;
    const begin = this.data.samples.time[this.sample];
    const [x, end] = [this.x(begin), this.x(begin + lanes.spans.span[this.sample])];
    if (end < this.left || x > this.width) return;
    const lane = lanes.lane[lanes.of[this.sample]];
    context.strokeStyle = mark;
    context.lineWidth = 2;
    context.strokeRect(x - 1, y + (lane - first) * LANE + 1, Math.max(3, end - x + 1), LANE - 2);
    context.lineWidth = 1;
  }

  /// The whole recording in one lane with what is in sight, the names of the marks, and the time axis.
  drawOverview(soft, mark) {
    const { data, width, left, overview } = this;
    const top = data.marks.length ? AXIS : 0;
    const context = cleared(overview, width, top + OVERVIEW + AXIS);
    const key = [width, left, isDark.matches].join();
    if (key !== this.overviewKey) {
      this.overviewKey = key;
      this.whole = this.drawn(new Lanes(data, "cpu", true), 0, 1, [0, data.end], OVERVIEW, false);
    }
    context.drawImage(this.whole, left, top, width - left, OVERVIEW);
    const [from, to] = this.sight;
    const whole = [0, data.end];
    this.drawRange(context, top, top + OVERVIEW, whole);
    if (this.looked) {
      context.strokeStyle = variable("--text");
      context.lineWidth = 2;
      const x = this.x(from, whole);
      context.strokeRect(x, top + 1, Math.max(3, this.x(to, whole) - x), OVERVIEW - 2);
    }
    this.drawAxis(context, top + OVERVIEW, soft);
    context.fillStyle = mark;
    let free = 0;
    for (const [at, name] of data.marks) {
      const x = this.x(Math.min(at, data.end));
      if (at < from || at > to || x < free) continue;
      context.fillRect(x, 2, 1, AXIS - 4);
      context.fillText(name, x + 3, AXIS / 2);
      free = x + context.measureText(name).width + 10;
    }
  }

  drawAxis(context, top, color) {
    const [from, to] = this.sight;
    const steps = [1, 2, 5];
    let step = 1;
    for (let at = 0; step < to - from && this.x(from + step) - this.left < 90; at++) {
      step = steps[at % 3] * 10 ** Math.floor(at / 3);
    }
    context.fillStyle = color;
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const x = this.x(at);
      context.fillRect(x, top + AXIS - 5, 1, 5);
      if (x < this.width - 50) context.fillText(`${secondsIn(at, step * 1000)} s`, x + 3, top + AXIS / 2);
    }
  }
}
