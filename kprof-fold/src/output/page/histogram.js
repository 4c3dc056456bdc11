// The hits of a point by weight. In: the weights of the hits, if all of them were recorded. Out: a canvas with their
// number for each weight on a logarithmic scale, and the weights below which half, 90 % and 99 % of the hits are. A
// drag or the arrow keys choose a range of weights.

/// Columns for each doubling of the weight.
const FINE = 4;

class Histogram {
  /// `chosen` is called with the ends of a range of weights, or null.
  constructor(canvas, data, chosen) {
    Object.assign(this, { canvas, data, chosen });
    canvas.hidden = !data.event?.isExact || !data.weights.length;
    if (canvas.hidden) return;
    const sorted = data.weights.toSorted();
    this.first = this.binOf(sorted[0]);
    this.count = this.binOf(sorted.at(-1)) + 1 - this.first;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = { bin: this.binAt(event), isFirst: true };
    });
    canvas.addEventListener("pointermove", (event) => {
      const bin = this.binAt(event);
      if (!this.drag || bin === this.drag.bin && this.drag.isFirst) return;
      this.choose(Math.min(bin, this.drag.bin), Math.max(bin, this.drag.bin) + 1, this.drag.isFirst);
      this.drag.isFirst = false;
    });
    canvas.addEventListener("pointerup", () => (this.drag = null));
    canvas.addEventListener("dblclick", () => chosen(null, true));
    canvas.addEventListener("keydown", ({ key, shiftKey }) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (!step) return;
      const ends = this.weights?.map((weight) => this.binOf(weight) - this.first);
      const [low, high] = ends ?? [0, this.count];
      this.choose(low + (shiftKey ? 0 : step), high + (shiftKey ? step : 0), true);
    });
  }

  binOf(weight) {
    return Math.floor(Math.log2(Math.max(1, weight)) * FINE + 1e-9);
  }

  /// The least whole weight of a column.
  weightOf(bin) {
    return Math.ceil(2 ** ((bin + this.first) / FINE) - 1e-6);
  }

  binAt(event) {
    const { left, width } = this.canvas.getBoundingClientRect();
    return Math.min(this.count - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * this.count)));
  }

  choose(low, high, isFirst) {
    const [from, to] = [Math.max(0, low), Math.min(this.count, high)];
    if (from >= to) return;
    const isAll = from === 0 && to === this.count;
    this.chosen(isAll ? null : [from && this.weightOf(from), this.weightOf(to)], isFirst);
  }

  /// Draws the hits of a choice, those of other weights pale.
  show(choice) {
    const { canvas, data } = this;
    if (canvas.hidden) return;
    this.weights = choice.weights;
    const bins = new Float64Array(this.count);
    const weights = [];
    eachChosen(data, { ...choice, weights: null }, (at) => {
      weights.push(data.weights[at]);
      bins[this.binOf(data.weights[at]) - this.first]++;
    });
    weights.sort((a, b) => a - b);
    const [width, height] = [canvas.clientWidth, 46];
    const context = cleared(canvas, width, height);
    const most = bins.reduce((most, one) => Math.max(most, one), 1);
    const wide = width / this.count;
    context.fillStyle = css(KIND_COLORS[KERNEL]);
    bins.forEach((sum, bin) => {
      context.globalAlpha = isInside(choice.weights, this.weightOf(bin)) ? 1 : 0.25;
      const high = (sum / most) * 28;
      context.fillRect(bin * wide, height - high, Math.max(1, wide - 1), high);
    });
    context.globalAlpha = 1;
    context.fillStyle = variable("--text");
    const at = (part) => weights[Math.min(weights.length - 1, Math.floor(part * weights.length))];
    const texts = [50, 90, 99].map((part) => `p${part} ${weights.length ? amountOf(at(part / 100)) : "-"}`);
    this.text = `${whole.format(weights.length)} hits: ${texts.join(", ")}`;
    context.fillText(this.text, 2, 8);
    canvas.ariaValueText = this.text;
  }
}
