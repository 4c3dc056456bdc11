// The data of the page. In: the compressed text in the page, written by `columns.rs`. Out: `data`: typed arrays and
// facts. Everything after this file only reads it.

/// What sampled code was; the numbers are those of `State` in `state.rs`.
const KINDS = ["kernel", "interrupts off", "interrupt", "user", "idle"];
const [KERNEL, USER, IDLE] = [0, 3, 4];
/// Traits of a frame; the bits are those of `bit` in `stacks.rs`.
const TRAIT = { inlined: 1, library: 2, user: 4, syscall: 8, interrupt: 16, lost: 32, unrecorded: 64 };

/// The numbers of a column (LEB128), in an array of this type.
function column(bytes, Numbers = Uint32Array) {
  let count = 0;
  for (let at = 0; at < bytes.length; at++) count += bytes[at] < 0x80;
  const numbers = new Numbers(count);
  for (let at = 0, place = 0; place < count; place++) {
    let [number, scale, byte] = [0, 1, 0x80];
    while (byte >= 0x80) {
      byte = bytes[at++];
      number += (byte & 0x7f) * scale;
      scale *= 0x80;
    }
    numbers[place] = number;
  }
  return numbers;
}

/// The bytes of a Base64 text, decompressed.
async function unpacked(text) {
  const letters = atob(text);
  const packed = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) packed[at] = letters.charCodeAt(at);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/// The times of the samples in microseconds, from the distances between them.
function times(distances) {
  const times = new Float64Array(distances.length);
  let now = 0;
  for (let at = 0; at < times.length; at++) times[at] = now += distances[at];
  return times;
}

/// The numbers in half the memory, if they are small enough.
const narrow = (numbers) => (numbers.some((number) => number > 0xffff) ? numbers : Uint16Array.from(numbers));

async function readData() {
  const element = document.getElementById("data");
  const bytes = await unpacked(element.textContent);
  element.remove();
  const pieces = [];
  const view = new DataView(bytes.buffer);
  for (let at = 0; at < bytes.length; ) {
    const length = view.getUint32(at, true);
    pieces.push(bytes.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  const data = JSON.parse(new TextDecoder().decode(pieces[0]));
  const [distance, frame, node, kind, instruction, time, cpu, stack, task] =
    pieces.slice(1, 10).map((bytes) => column(bytes));
  // Node 0 is the root. A node's parent comes before it.
  const parent = new Int32Array(distance.length + 1);
  const frames = new Int32Array(parent.length);
  parent[0] = frames[0] = -1;
  for (let at = 1; at < parent.length; at++) {
    parent[at] = at - distance[at - 1];
    frames[at] = frame[at - 1];
  }
  data.nodes = { parent, frame: frames };
  data.stacks = { node, kind, instruction };
  // The loop over all samples reads these three; the less memory, the faster.
  data.samples = { time: times(time), cpu: narrow(cpu), stack: narrow(stack), task: narrow(task) };
  // With an event each sample is a hit, which counts with the weight for which it stands.
  data.weights = data.event ? column(pieces[11], Float64Array) : null;
  data.oldCounts = column(pieces[10], data.event ? Float64Array : Uint32Array);
  data.names = [...data.tree.frames, "[lost]"];
  data.traits = [...data.tree.traits, TRAIT.lost];
  data.lostFrame = data.names.length - 1;
  // What is shown besides the samples.
  data.besideFrames = [data.lostFrame];
  if (data.event) {
    data.besideFrames.push(data.names.push("[not recorded]") - 1);
    data.traits.push(TRAIT.unrecorded);
  }
  // Frames of one name are one function, wherever it was inlined: the first of them stands for all.
  const firsts = data.byName = new Map();
  const firstOf = (name, at) => firsts.get(name) ?? firsts.set(name, at).get(name);
  data.same = Int32Array.from(data.names, (_, at) => firstOf(fullName(data, at), at));
  // The order of the names: neighbours in the picture are sorted by it.
  const order = data.names.map((_, at) => at).sort((a, b) => (data.names[a] < data.names[b] ? -1 : 1));
  data.rank = new Int32Array(order.length);
  order.forEach((frame, rank) => (data.rank[frame] = rank));
  const last = data.samples.time.at(-1) ?? 0;
  data.end = data.gaps.concat(data.filtered).reduce((end, one) => Math.max(end, one[2] ?? 0), last) + 1;
  return data;
}
