// The flame graph. In: one tree, or two around one function (callers above, callees below), with their samples. Out:
// boxes on a canvas, of which only those in sight are drawn. It knows which box is under the pointer and which node is
// selected; what a click means is decided in main.js.

const ROW = 18;
/// Narrower boxes are not drawn.
const MIN_WIDTH = 0.4;
const FONT = "12px ui-monospace, monospace";

class Flame {
  constructor(canvas, scroll, spacer) {
    Object.assign(this, { canvas, scroll, spacer, parts: [], boxes: [], selected: null, hovered: null });
    scroll.addEventListener("scroll", () => this.draw());
  }

  /// Takes new contents. Each part is `{ tree, weights, zoom, grows }`, where `grows` is "up" or "down" and `skip` is
  /// how many rows from the root on are left out. `text` gives
  /// the label of a box, `color` its color, and `isFaded` whether it is out of the search.
  show(parts, style) {
    Object.assign(this, { parts, style });
    this.layout();
    this.draw();
  }

  layout() {
    this.width = this.scroll.clientWidth;
    this.boxes = [];
    let above = 0;
    for (const part of this.parts) {
      // Around one function, the root is not drawn, and the function itself only once.
      const skip = part.skip ?? 0;
      part.boxes = this.boxesOf(part).filter((box) => (box.row -= skip) >= 0);
      const rows = part.boxes.reduce((most, box) => Math.max(most, box.row + 1), 1);
      for (const box of part.boxes) {
        box.part = part;
        box.y = above + (part.grows === "up" ? rows - 1 - box.row : box.row) * ROW;
        this.boxes.push(box);
      }
      above += rows * ROW;
    }
    const isNew = this.height !== above;
    this.height = above;
    this.spacer.style.height = `${above}px`;
    // A flame graph is read from its root, which is at the bottom.
    if (isNew && this.parts.length === 1 && this.parts[0].grows === "up") this.scroll.scrollTop = above;
    this.seen ??= this.scroll.clientHeight;
  }

  /// Draws the same contents in another width or height. A root that was in sight stays in sight.
  resize() {
    const { scroll } = this;
    if (!this.style) return;
    const sawRoot = scroll.scrollTop + (this.seen ?? 0) >= this.height - 1;
    this.seen = scroll.clientHeight;
    if (this.width !== scroll.clientWidth) this.layout();
    if (sawRoot && this.parts[0].grows === "up" && this.parts.length === 1) scroll.scrollTop = this.height;
    this.draw();
  }

  /// The boxes of a part: the zoomed node and its callers in full width, everything below in proportion.
  boxesOf({ tree, weights, zoom }) {
    const boxes = [];
    const base = weights.total[zoom];
    if (!(base > 0)) return [{ node: 0, x: 0, width: this.width, row: 0 }];
    for (let node = tree.parent[zoom]; node >= 0; node = tree.parent[node]) {
      boxes.push({ node, x: 0, width: this.width, row: tree.depth[node], isCaller: true });
    }
    const scale = this.width / base;
    const waiting = [[zoom, 0]];
    while (waiting.length) {
      const [node, x] = waiting.pop();
      const width = weights.total[node] * scale;
      boxes.push({ node, x, width, row: tree.depth[node] });
      let at = x;
      for (let child = tree.first[node]; child < tree.first[node + 1]; child++) {
        const next = tree.children[child];
        const part = weights.total[next] * scale;
        if (part >= MIN_WIDTH) waiting.push([next, at]);
        at += part;
      }
    }
    return boxes;
  }

  draw() {
    const { canvas, style } = this;
    if (!style) return;
    const scale = devicePixelRatio || 1;
    const height = Math.max(ROW, Math.min(this.height, this.scroll.clientHeight || this.height));
    canvas.width = this.width * scale;
    canvas.height = height * scale;
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.font = FONT;
    context.textBaseline = "middle";
    const letter = context.measureText("m").width;
    const top = this.scroll.scrollTop;
    const [ink, line] = [getComputedStyle(document.body).color, css(OUTLINE)];
    for (const box of this.boxes) {
      const y = box.y - top;
      if (y + ROW < 0 || y > height) continue;
      context.globalAlpha = box.isCaller ? 0.45 : style.isFaded(box) ? 0.3 : 1;
      context.fillStyle = style.color(box);
      context.fillRect(box.x, y, Math.max(box.width - 0.6, 0.3), ROW - 1);
      const text = box.width > 3 * letter ? label(style.text(box), Math.floor((box.width - 6) / letter)) : "";
      context.globalAlpha = 1;
      context.fillStyle = ink;
      if (text) context.fillText(text, box.x + 3, y + ROW / 2);
      if (this.isSelected(box) || box === this.hovered) {
        context.strokeStyle = line;
        context.lineWidth = 2;
        context.strokeRect(box.x + 1, y + 1, Math.max(box.width - 2, 1), ROW - 3);
      }
    }
    context.globalAlpha = 1;
  }

  isSelected(box) {
    return this.selected !== null && box.part === this.parts[this.selected.part] && box.node === this.selected.node;
  }

  /// The box at a place of the page.
  at(event) {
    const area = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top + this.scroll.scrollTop];
    return this.boxes.find((box) => y >= box.y && y < box.y + ROW && x >= box.x && x < box.x + box.width) ?? null;
  }

  hover(box) {
    if (box === this.hovered) return;
    this.hovered = box;
    this.draw();
  }

  select(box) {
    this.selected = box && { part: this.parts.indexOf(box.part), node: box.node };
    if (box && (box.y < this.scroll.scrollTop || box.y + ROW > this.scroll.scrollTop + this.scroll.clientHeight)) {
      this.scroll.scrollTop = box.y - this.scroll.clientHeight / 2;
    }
    this.draw();
  }

  /// The box that an arrow key leads to from the selected one.
  neighbour(key) {
    const now = this.boxes.find((box) => this.isSelected(box)) ?? null;
    const part = now?.part ?? this.parts[0];
    if (!now) return part.boxes.find((box) => box.node === part.zoom) ?? null;
    const { tree } = part;
    const below = part.grows === "up" ? "ArrowUp" : "ArrowDown";
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const row = part.boxes.filter((box) => box.row === now.row).sort((a, b) => a.x - b.x);
      return row[row.indexOf(now) + (key === "ArrowRight" ? 1 : -1)] ?? now;
    }
    if (key === below) {
      const inside = part.boxes.filter((box) => tree.parent[box.node] === now.node);
      return inside.sort((a, b) => b.width - a.width)[0] ?? now;
    }
    return part.boxes.find((box) => box.node === tree.parent[now.node]) ?? now;
  }
}
