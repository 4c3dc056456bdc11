// The flame graph. In: one tree, or two around one function (callers above, callees below), with their samples. Out:
// boxes on a canvas, of which only those in sight are drawn. It knows which box is under the pointer and which node is
// selected; what a click means is decided in main.js.

const ROW = 18;
/// Narrower boxes are not drawn.
const MIN_WIDTH = 0.4;
const FONT = "12px ui-monospace, monospace";
const LAST_FONT = `600 ${FONT}`;
/// How strong the path of a name is. Its contrast with each box is still at least 4.5 to 1.
const PATH_ALPHA = 0.94;

class Flame {
  constructor(canvas, scroll, spacer) {
    Object.assign(this, { canvas, scroll, spacer, parts: [], boxes: [], selected: null, hovered: null });
    scroll.addEventListener("scroll", () => this.draw());
  }

  /// Takes new contents. Each part is `{ tree, weights, zoom, grows }`, where `grows` is "up" or "down" and `skip` is
  /// how many rows from the root on are left out; or what a flame chart is made of. `parts` gives the label of a box,
  /// `color` its color, and `isFaded` whether it is out of the search.
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

  /// The boxes of a part: the zoomed node and its callers in full width, everything below in proportion. If chains are
  /// joined, a function and its only callee share a box, which is that of the callee.
  boxesOf(part) {
    const { tree, weights, zoom, isJoined } = part;
    if (part.lanes) return chartBoxes(part, this.width);
    const boxes = [];
    const base = weights.total[zoom];
    if (!(base > 0)) return [{ node: 0, x: 0, width: this.width, row: 0 }];
    for (let node = tree.parent[zoom]; node >= 0; node = tree.parent[node]) {
      boxes.push({ node, x: 0, width: this.width, row: tree.depth[node], isCaller: true });
    }
    const scale = this.width / base;
    const waiting = [[zoom, 0, tree.depth[zoom]]];
    while (waiting.length) {
      const [top, x, row] = waiting.pop();
      let node = top;
      for (let only = top; isJoined && top > 0 && only > 0; ) {
        const all = tree.children.subarray(tree.first[node], tree.first[node + 1]);
        only = all.find((child) => weights.total[child] === weights.total[node]) ?? 0;
        if (only) node = only;
      }
      const width = weights.total[node] * scale;
      boxes.push({ node, top, x, width, row });
      let at = x;
      for (let child = tree.first[node]; child < tree.first[node + 1]; child++) {
        const next = tree.children[child];
        const part = weights.total[next] * scale;
        if (part >= MIN_WIDTH) waiting.push([next, at, row + 1]);
        at += part;
      }
    }
    return boxes;
  }

  draw() {
    const { canvas, style } = this;
    if (!style) return;
    const height = Math.max(ROW, Math.min(this.height, this.scroll.clientHeight || this.height));
    const context = cleared(canvas, this.width, height);
    const letter = context.measureText("m").width;
    const top = this.scroll.scrollTop;
    const [ink, line] = [getComputedStyle(document.body).color, css(OUTLINE)];
    for (const box of this.boxes) {
      const y = box.y - top;
      if (y + ROW < 0 || y > height) continue;
      context.globalAlpha = box.isCaller ? 0.45 : style.isFaded(box) ? 0.3 : 1;
      context.fillStyle = style.color(box);
      context.fillRect(box.x, y, Math.max(box.width - 0.6, 0.3), ROW - 1);
      context.fillStyle = ink;
      if (box.width > 3 * letter) {
        const { path, last } = label(style.parts(box), Math.floor((box.width - 6) / letter));
        context.globalAlpha = PATH_ALPHA;
        if (path) context.fillText(path, box.x + 3, y + ROW / 2);
        context.globalAlpha = 1;
        context.font = LAST_FONT;
        context.fillText(last, box.x + 3 + path.length * letter, y + ROW / 2);
        context.font = FONT;
      }
      context.globalAlpha = 1;
      if (this.isSelected(box) || box === this.hovered) {
        context.strokeStyle = line;
        context.lineWidth = 2;
        context.strokeRect(box.x + 1, y + 1, Math.max(box.width - 2, 1), ROW - 3);
      }
    }
    context.globalAlpha = 1;
  }

  isSelected(box) {
    const { selected } = this;
    return selected !== null && box.part === this.parts[selected.part] && box.node === selected.node &&
      box.from === selected.from;
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

  /// What is still known of a box when the picture has been made anew.
  placeOf(box) {
    return { part: this.parts.indexOf(box.part), node: box.node, from: box.from };
  }

  select(box) {
    this.selected = box && this.placeOf(box);
    if (box && (box.y < this.scroll.scrollTop || box.y + ROW > this.scroll.scrollTop + this.scroll.clientHeight)) {
      this.scroll.scrollTop = box.y - this.scroll.clientHeight / 2;
    }
    this.draw();
  }

  /// The box that an arrow key leads to from the selected one.
  neighbour(key) {
    const now = this.boxes.find((box) => this.isSelected(box)) ?? null;
    const part = now?.part ?? this.parts[0];
    if (!now) return part.boxes.find((box) => box.node === part.zoom) ?? part.boxes[0] ?? null;
    const rowOf = (row) => part.boxes.filter((box) => box.row === row).sort((a, b) => a.x - b.x);
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const row = rowOf(now.row);
      return row[row.indexOf(now) + (key === "ArrowRight" ? 1 : -1)] ?? now;
    }
    if (key === (part.grows === "up" ? "ArrowUp" : "ArrowDown")) {
      const inside = rowOf(now.row + 1).filter((box) => box.x >= now.x - 0.01 && box.x < now.x + now.width);
      return inside.sort((a, b) => b.width - a.width)[0] ?? now;
    }
    return rowOf(now.row - 1).find((box) => box.x <= now.x + 0.01 && box.x + box.width > now.x) ?? now;
  }
}
