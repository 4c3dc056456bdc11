// The flame chart: the stacks of one lane in the order of time. In: the samples of a lane in the range in sight. Out:
// boxes for the flame graph's canvas. Neighbouring samples with the same callers share a box, which is as wide as their
// time.

/// The boxes of a part `{ tree, lanes, lane, sight, isShown }` on a picture of this width.
function chartBoxes({ tree, lanes, lane, sight: [from, to], isShown }, width) {
  const scale = width / (to - from);
  const { stack } = lanes.data.samples;
  const [boxes, open, path] = [[], [], []];
  const close = (depth) => {
    for (const box of open.splice(depth)) {
      box.width = (box.to - box.from) * scale;
      if (box.width >= MIN_WIDTH) boxes.push(box);
    }
  };
  lanes.each(from, to, (at, begin, end) => {
    if (lanes.lane[lanes.of[at]] !== lane) return;
    path.length = 0;
    if (isShown(at)) for (let node = tree.leaf[stack[at]]; node > 0; node = tree.parent[node]) path.push(node);
    path.reverse();
    let depth = 0;
    const isNext = (box) => box && box.node === path[depth] && begin - box.to <= 1;
    for (; isNext(open[depth]); depth++) {
      open[depth].to = end;
      open[depth].samples++;
    }
    close(depth);
    for (; depth < path.length; depth++) {
      open.push({ node: path[depth], x: (begin - from) * scale, row: depth, from: begin, to: end, samples: 1 });
    }
  });
  close(0);
  return boxes;
}
