// Trees of frames. In: the stacks of the data and the choice of frames. Out: a tree for the picture: callers to
// callees, callees to callers, or the part around one function; and its samples. A tree holds all stacks, so a new
// range of time only needs new numbers for the same tree.

/// A tree that grows. Node 0 is the root; a parent has a smaller number than its children.
class Tree {
  constructor(stacks) {
    this.length = 1;
    this.parent = new Int32Array(1024).fill(-1);
    this.frame = new Int32Array(1024).fill(-1);
    this.slots = new Int32Array(4096);
    /// The innermost node of each stack; -1 if the stack is not in this tree.
    this.leaf = new Int32Array(stacks).fill(-1);
  }

  slot(parent, frame) {
    const mask = this.slots.length - 1;
    let at = (Math.imul(parent, 0x9e3779b1) ^ Math.imul(frame, 0x85ebca6b)) >>> 7;
    for (;; at++) {
      const node = this.slots[(at &= mask)];
      if (!node || (this.parent[node] === parent && this.frame[node] === frame)) return at;
    }
  }

  /// The child of a node with this frame, added if it is new.
  child(parent, frame) {
    const at = this.slot(parent, frame);
    if (this.slots[at]) return this.slots[at];
    if (this.length === this.parent.length) this.grow();
    const node = this.length++;
    this.parent[node] = parent;
    this.frame[node] = frame;
    this.slots[at] = node;
    return node;
  }

  grow() {
    for (const name of ["parent", "frame"]) {
      const more = new Int32Array(this.length * 2).fill(-1);
      more.set(this[name]);
      this[name] = more;
    }
    this.slots = new Int32Array(this.slots.length * 2);
    for (let node = 1; node < this.length; node++) {
      this.slots[this.slot(this.parent[node], this.frame[node])] = node;
    }
  }

  /// Adds what the picture needs: the children of each node by name, the depth of each node, and whether the node is
  /// the outermost one of its function.
  finish(rank) {
    const count = this.length;
    this.first = new Int32Array(count + 1);
    for (let node = 1; node < count; node++) this.first[this.parent[node] + 1]++;
    for (let node = 0; node < count; node++) this.first[node + 1] += this.first[node];
    const byName = new Int32Array(count - 1);
    const places = new Int32Array(rank.length + 1);
    for (let node = 1; node < count; node++) places[rank[this.frame[node]] + 1]++;
    for (let at = 0; at < rank.length; at++) places[at + 1] += places[at];
    for (let node = 1; node < count; node++) byName[places[rank[this.frame[node]]]++] = node;
    this.children = new Int32Array(count - 1);
    const next = this.first.slice();
    for (const node of byName) this.children[next[this.parent[node]]++] = node;
    this.depth = new Int32Array(count);
    this.isOutermost = new Uint8Array(count);
    const open = new Int32Array(rank.length);
    // Each node is taken twice: when it is entered and, as its complement, when it is left.
    const waiting = [0];
    while (waiting.length) {
      const node = waiting.pop();
      if (node < 0) {
        open[this.frame[~node]]--;
        continue;
      }
      if (node > 0) {
        this.depth[node] = this.depth[this.parent[node]] + 1;
        this.isOutermost[node] = open[this.frame[node]]++ === 0;
        waiting.push(~node);
      }
      for (let at = this.first[node]; at < this.first[node + 1]; at++) waiting.push(this.children[at]);
    }
    return this;
  }
}

/// For each frame the function that it is shown as, or -1 if it is not shown. The time of an inlined frame that is not
/// shown is charged to the function around it.
function shownFrames(data, choice) {
  const hidden = { own: TRAIT.inlined | TRAIT.library, none: TRAIT.inlined, all: -1 }[choice.inline];
  const isShown = (traits) => (traits & hidden) !== hidden && (choice.kinds[USER] || !(traits & TRAIT.user));
  return data.same.map((first, frame) => (isShown(data.traits[frame]) ? first : -1));
}

/// The tree from callers to callees.
function callTree(data, choice) {
  const tree = new Tree(data.stacks.node.length);
  const shown = shownFrames(data, choice);
  const { parent, frame } = data.nodes;
  const place = new Int32Array(parent.length);
  for (let node = 1; node < parent.length; node++) {
    const above = place[parent[node]];
    const func = shown[frame[node]];
    place[node] = func < 0 ? above : tree.child(above, func);
  }
  for (let stack = 0; stack < tree.leaf.length; stack++) tree.leaf[stack] = place[data.stacks.node[stack]];
  tree.beside = data.besideFrames.map((frame) => tree.child(0, frame));
  return tree.finish(data.rank);
}

/// Calls `use` with the shown functions of each stack, innermost first. The list is used again for the next stack.
function eachPath(data, choice, use) {
  const shown = shownFrames(data, choice);
  const path = [];
  for (let stack = 0; stack < data.stacks.node.length; stack++) {
    path.length = 0;
    for (let node = data.stacks.node[stack]; node > 0; node = data.nodes.parent[node]) {
      const func = shown[data.nodes.frame[node]];
      if (func >= 0) path.push(func);
    }
    use(stack, path);
  }
}

/// The tree from callees to callers; with a function, only its callers, from its outermost call on.
function callerTree(data, choice, func = null) {
  const tree = new Tree(data.stacks.node.length);
  eachPath(data, choice, (stack, path) => {
    const from = func === null ? 0 : path.lastIndexOf(func);
    if (from < 0 || !path.length) return;
    let node = 0;
    for (let at = from; at < path.length; at++) node = tree.child(node, path[at]);
    tree.leaf[stack] = node;
  });
  tree.beside = func === null ? data.besideFrames.map((frame) => tree.child(0, frame)) : [];
  return tree.finish(data.rank);
}

/// The tree of a function and everything that it calls, from its outermost call on.
function calleeTree(data, choice, func) {
  const tree = new Tree(data.stacks.node.length);
  eachPath(data, choice, (stack, path) => {
    const from = path.lastIndexOf(func);
    if (from < 0) return;
    let node = 0;
    for (let at = from; at >= 0; at--) node = tree.child(node, path[at]);
    tree.leaf[stack] = node;
  });
  tree.beside = [];
  return tree.finish(data.rank);
}

/// Samples of each node: `self` where it is the end of a stack, `total` with everything below it. `beside` is what is
/// shown besides the samples.
function weigh(tree, counts, beside) {
  const self = new Float64Array(tree.length);
  for (let stack = 0; stack < counts.length; stack++) {
    if (counts[stack] && tree.leaf[stack] >= 0) self[tree.leaf[stack]] += counts[stack];
  }
  tree.beside.forEach((node, at) => (self[node] = beside[at] ?? 0));
  const total = self.slice();
  for (let node = tree.length - 1; node > 0; node--) total[tree.parent[node]] += total[node];
  return { self, total };
}

/// Self and total samples of each function; a function counts once per sample even if it is recursive. `tree` is a
/// call tree.
function byFunction(data, tree, weights) {
  const [self, total] = [new Float64Array(data.names.length), new Float64Array(data.names.length)];
  for (let node = 1; node < tree.length; node++) {
    self[tree.frame[node]] += weights.self[node];
    if (tree.isOutermost[node]) total[tree.frame[node]] += weights.total[node];
  }
  return { self, total };
}

/// Which stacks have a function. `tree` is a call tree.
function stacksWith(tree, func) {
  const isInside = new Uint8Array(tree.length);
  for (let node = 1; node < tree.length; node++) {
    isInside[node] = isInside[tree.parent[node]] || tree.frame[node] === func ? 1 : 0;
  }
  return Uint8Array.from(tree.leaf, (leaf) => isInside[leaf]);
}

/// For each of some functions the samples that have it, in so many parts of the chosen time. `tree` is a call tree.
function overTime(data, tree, choice, frames, bins) {
  const { time, stack } = data.samples;
  const [from, to] = choice.from === null ? [0, data.end] : [choice.from, choice.to];
  const nodes = new Float32Array(tree.length * bins);
  eachChosen(data, choice, (at) => {
    const bin = Math.floor(((time[at] - from) / (to - from)) * bins);
    nodes[tree.leaf[stack[at]] * bins + bin] += data.weights?.[at] ?? 1;
  });
  const rows = new Int32Array(data.names.length).fill(-1);
  frames.forEach((frame, row) => (rows[frame] = row));
  const sums = new Float32Array(frames.length * bins);
  for (let node = tree.length - 1; node > 0; node--) {
    const row = tree.isOutermost[node] ? rows[tree.frame[node]] : -1;
    for (let bin = 0; bin < bins; bin++) {
      const sum = nodes[node * bins + bin];
      if (sum === 0) continue;
      nodes[tree.parent[node] * bins + bin] += sum;
      if (row >= 0) sums[row * bins + bin] += sum;
    }
  }
  return sums;
}

/// The node at the end of a path of frames from the root, or as far as the tree has it.
function nodeAt(tree, path) {
  let node = 0;
  for (const frame of path) {
    const next = tree.slots[tree.slot(node, frame)];
    if (!next) break;
    node = next;
  }
  return node;
}

/// The frames from the root to a node.
function pathTo(tree, node) {
  const path = [];
  for (; node > 0; node = tree.parent[node]) path.push(tree.frame[node]);
  return path.reverse();
}
