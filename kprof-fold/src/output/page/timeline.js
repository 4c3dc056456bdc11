// The lanes: what each CPU did over time. In: samples, losses, filtered ticks, marks. Out: a canvas with a lane per CPU
// in which a range can be selected with the pointer. Each column of pixels shows the shares of its ticks; where there
// are no ticks it is empty. Hits of a point are as high as they weigh: the heaviest column has the whole height.

const LANE = 24;
const LEFT = 64;
const AXIS = 20;

class Timeline {
  /// `selected` is called with the ends of a new range in microseconds. `scale` is where the height of a lane is said.
  constructor(canvas, scale, data, selected) {
    Object.assign(this, { canvas, scale, data, selected, range: null, drag: null });
    this.hasMarks = data.marks.length > 0;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = { from: this.micros(event), to: this.micros(event) };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!this.drag) return;
      this.drag.to = this.micros(event);
      this.draw();
    });
    canvas.addEventListener("pointerup", () => {
      const { from, to } = this.drag ?? { from: 0, to: 0 };
      this.drag = null;
      if (Math.abs(to - from) > (this.data.end / (this.width - LEFT)) * 2) {
        this.selected(Math.min(from, to), Math.max(from, to));
      } else this.draw();
    });
    canvas.addEventListener("dblclick", () => this.selected(null, null));
  }

  micros(event) {
    const x = event.clientX - this.canvas.getBoundingClientRect().left - LEFT;
    const part = Math.min(1, Math.max(0, x / (this.width - LEFT)));
    return Math.round(part * this.data.end);
  }

  x(micros) {
    return LEFT + (micros / this.data.end) * (this.width - LEFT);
  }

  /// Ticks per lane, column and kind between two times. Losses and filtered ticks are spread evenly over their time.
  bins(columns, from = 0, to = this.data.end) {
    const { data } = this;
    const kinds = KINDS.length + 1;
    const { weights } = data;
    const lanes = data.cpus.map(() => new (weights ? Float64Array : Float32Array)(columns * kinds));
    const { time, cpu, stack } = data.samples;
    const scale = columns / (to - from);
    const until = firstFrom(time, to);
    for (let at = firstFrom(time, from); at < until; at++) {
      const column = Math.floor((time[at] - from) * scale);
      lanes[cpu[at]][column * kinds + data.stacks.kind[stack[at]]] += weights ? weights[at] : 1;
    }
    const spread = (lane, begin, end, kind, ticks) => {
      if (!lane || !ticks || end === null) return;
      const first = ((begin ?? end) - from) * scale;
      const last = Math.max(first, Math.min((end - from) * scale, (data.end - from) * scale - 1e-6));
      const [low, high] = [Math.max(0, Math.floor(first)), Math.min(columns - 1, Math.floor(last))];
      for (let column = low; column <= high; column++) {
        const part = first === last ? 1 : (Math.min(column + 1, last) - Math.max(column, first)) / (last - first);
        lane[column * kinds + kind] += ticks * part;
      }
    };
    const lane = (number) => lanes[data.cpus.indexOf(number)];
    for (const [cpu, from, to, lost] of data.gaps) spread(lane(cpu), from, to, KINDS.length, lost);
    for (const [cpu, from, to, user, idle, kernel] of data.filtered) {
      spread(lane(cpu), from, to, KERNEL, kernel);
      spread(lane(cpu), from, to, USER, user);
      spread(lane(cpu), from, to, IDLE, idle);
    }
    return lanes;
  }

  /// The ticks of each kind in the chosen time, on the CPUs that are shown. Their task is not known of all of them.
  ticks({ from, to, hiddenCpus }) {
    const lanes = from === null ? this.bins(1) : this.bins(1, from, to);
    const isShown = (_, at) => !hiddenCpus.has(this.data.cpus[at]);
    const shown = lanes.filter(isShown);
    return lanes[0]?.map((_, kind) => shown.reduce((sum, lane) => sum + lane[kind], 0)) ?? [];
  }

  /// What the CPU under the pointer did at that time: the kinds of its ticks in this column of pixels.
  describe(event) {
    const { data } = this;
    const y = event.clientY - this.canvas.getBoundingClientRect().top - (this.hasMarks ? AXIS : 0);
    const lane = Math.floor(y / LANE);
    const at = this.micros(event);
    if (!this.lanes || lane < 0 || lane >= data.cpus.length) return "";
    const width = data.end / this.lanes.width;
    const first = Math.min(Math.floor(at / width), this.lanes.width - 1) * width;
    const ticks = this.bins(1, first, Math.max(first + width, first + 1))[lane];
    const all = ticks.reduce((sum, one) => sum + one, 0);
    const shares = [...KINDS, "lost"].map((name, kind) => [ticks[kind], name]).filter(([ticks]) => ticks > 0)
      .sort((a, b) => b[0] - a[0]).map(([ticks, name]) => `${percent(ticks, all)} ${name}`);
    return `CPU ${data.cpus[lane]}, ${seconds(at)} s: ${shares.join(", ") || "no tick"}`;
  }

  show(range, hiddenCpus) {
    const { data } = this;
    Object.assign(this, { range, hiddenCpus });
    const width = this.canvas.parentElement.clientWidth;
    if (width !== this.width || isDark.matches !== this.wasDark) {
      [this.width, this.wasDark] = [width, isDark.matches];
      this.lanes = this.drawnLanes();
      const column = seconds(data.end / this.lanes.width);
      const when = data.event?.isLive ? " Each allocation is at the time at which it was made." : "";
      if (data.weights) this.scale.textContent = `Full height: ${amountOf(this.most)} in ${column} s.${when}`;
    }
    this.draw();
  }

  /// The lanes, drawn once for each width.
  drawnLanes() {
    const { data } = this;
    const columns = Math.max(1, Math.floor(this.width - LEFT));
    const lanes = this.bins(columns);
    const canvas = document.createElement("canvas");
    canvas.width = columns;
    canvas.height = Math.max(1, data.cpus.length * LANE);
    const context = canvas.getContext("2d");
    const colors = KIND_COLORS.map((color) => css(color));
    const sumOf = (ticks) => ticks.reduce((sum, one) => sum + one, 0);
    const ticksAt = (lane, column) => lane.subarray(column * colors.length, (column + 1) * colors.length);
    this.most = 0;
    for (const lane of data.weights ? lanes : []) {
      for (let column = 0; column < columns; column++) this.most = Math.max(this.most, sumOf(ticksAt(lane, column)));
    }
    lanes.forEach((lane, number) => {
      for (let column = 0; column < columns; column++) {
        const ticks = ticksAt(lane, column);
        const sum = sumOf(ticks);
        // A hit of any weight can be seen.
        const full = data.weights ? Math.max(1, (sum / this.most) * (LANE - 4)) : LANE - 4;
        let y = (number + 1) * LANE - 3;
        for (let kind = 0; sum > 0 && kind < colors.length; kind++) {
          const height = (ticks[kind] / sum) * full;
          y -= height;
          context.fillStyle = colors[kind];
          context.fillRect(column, y, 1, height);
        }
      }
    });
    return canvas;
  }

  draw() {
    const { canvas, data, width } = this;
    const top = this.hasMarks ? AXIS : 0;
    const bottom = top + data.cpus.length * LANE;
    const scale = devicePixelRatio || 1;
    canvas.width = width * scale;
    canvas.height = (bottom + AXIS) * scale;
    canvas.style.height = `${bottom + AXIS}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = FONT;
    context.textBaseline = "middle";
    const style = getComputedStyle(document.documentElement);
    const [ink, soft, mark] = ["--text", "--soft", "--mark"].map((name) => style.getPropertyValue(name));
    context.drawImage(this.lanes, LEFT, top);
    data.cpus.forEach((cpu, lane) => {
      context.fillStyle = this.hiddenCpus?.has(cpu) ? soft : ink;
      context.globalAlpha = this.hiddenCpus?.has(cpu) ? 0.5 : 1;
      context.fillText(`CPU ${cpu}`, 0, top + lane * LANE + LANE / 2);
    });
    context.globalAlpha = 1;
    this.drawAxis(context, bottom, soft);
    this.drawMarks(context, bottom, mark);
    const range = this.drag ?? this.range;
    if (range) {
      const [from, to] = [this.x(Math.min(range.from, range.to)), this.x(Math.max(range.from, range.to))];
      context.fillStyle = style.getPropertyValue("--back");
      context.globalAlpha = 0.7;
      context.fillRect(LEFT, top, from - LEFT, bottom - top);
      context.fillRect(to, top, width - to, bottom - top);
      context.globalAlpha = 1;
      context.strokeStyle = mark;
      context.strokeRect(from, top + 0.5, Math.max(to - from, 1), bottom - top - 1);
    }
  }

  drawAxis(context, bottom, color) {
    const steps = [1, 2, 5];
    let step = 1;
    for (let at = 0; this.x(step) - LEFT < 90; at++) step = steps[at % 3] * 10 ** Math.floor(at / 3);
    context.fillStyle = color;
    for (let at = 0; at <= this.data.end; at += step) {
      const digits = Math.max(0, 6 - Math.floor(Math.log10(step)));
      const x = this.x(at);
      context.fillRect(x, bottom, 1, 4);
      if (x < this.width - 50) context.fillText(`${(at / 1e6).toFixed(digits)} s`, x + 2, bottom + 11);
    }
  }

  drawMarks(context, bottom, color) {
    context.fillStyle = color;
    let free = 0;
    for (const [at, name] of this.data.marks) {
      const x = this.x(Math.min(at, this.data.end));
      context.fillRect(x, 2, 1, bottom - 2);
      if (x < free) continue;
      context.fillText(name, x + 3, AXIS / 2 - 1);
      free = x + context.measureText(name).width + 10;
    }
  }
}
