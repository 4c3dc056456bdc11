// What each lane did over time. In: samples, losses, filtered ticks. Out: lanes by CPU or by task, and for each column
// of a range the parts of its time. A wide column shows the shares of its ticks, as `report` counts them; losses and
// filtered ticks are spread evenly over their time. A narrow column shows time: a sample stands until the next tick of
// its CPU, and the rest is divided among the filtered and lost ticks of which only the sum in that time is known.

const LOST = KINDS.length;
/// A sample stands for at most so many periods if no tick between it and the next one is known.
const MOST_PERIODS = 8;
/// A column of at least so many periods is wide.
const WIDE = 4;

/// How long each sample stands, in microseconds.
function spans({ samples: { time, cpu }, gaps, filtered, cpus }) {
  const span = new Float32Array(time.length);
  const next = new Float64Array(cpus.length).fill(Infinity);
  for (let at = time.length - 1; at >= 0; at--) {
    span[at] = next[cpu[at]] - time[at];
    next[cpu[at]] = time[at];
  }
  const step = Math.ceil(time.length / 10_000);
  const distances = span.filter((distance, at) => at % step === 0 && distance < Infinity).sort();
  // Longer distances may have ticks without a sample between them.
  const period = Math.max(1, distances[distances.length >> 2] ?? 1);
  // Where ticks without a sample are known, a sample ends before them.
  const rests = [...gaps, ...filtered].filter(([, , to]) => to !== null)
    .map(([cpu, from, to]) => ({ cpu: cpus.indexOf(cpu), from: from ?? to, to })).sort((a, b) => a.from - b.from);
  const until = new Float64Array(cpus.length);
  for (let at = 0, rest = 0; at < time.length; at++) {
    for (; rests[rest]?.from <= time[at]; rest++) {
      until[rests[rest].cpu] = Math.max(until[rests[rest].cpu], rests[rest].to);
    }
    const isAlone = time[at] >= until[cpu[at]];
    if (span[at] > (isAlone ? MOST_PERIODS : 1.75) * period) span[at] = period;
  }
  return { span, longest: MOST_PERIODS * period, period };
}

/// A column has so many numbers: of each kind, of lost ticks, and of what is marked.
const SIZE = LOST + 2;

/// The sum of all kinds of a column.
function sumOf(parts, at) {
  let sum = 0;
  for (let kind = 0; kind <= LOST; kind++) sum += parts[at + kind];
  return sum;
}

class Lanes {
  /// `isOne` makes one lane of all.
  constructor(data, by, isOne = false) {
    Object.assign(this, { data, by });
    this.of = data.samples[by];
    const sums = new Float64Array(data[`${by}s`].length);
    for (let at = 0; at < this.of.length; at++) sums[this.of[at]]++;
    /// The index of the CPU or task of each lane: CPUs by number, tasks by samples.
    this.order = [...sums.keys()];
    if (by === "task") this.order.sort((a, b) => sums[b] - sums[a]);
    this.lane = new Int32Array(sums.length);
    this.order.forEach((one, lane) => (this.lane[one] = isOne ? 0 : lane));
    /// The full height of a lane: so many columns of time.
    this.most = isOne ? Math.max(1, sums.length) : 1;
    this.spans = data.spans ??= spans(data);
  }

  get length() {
    return this.order.length;
  }

  name(lane) {
    const { data, order, by } = this;
    return by === "cpu" ? `CPU ${data.cpus[order[lane]]}` : data.tasks[order[lane]] || "[no name]";
  }

  /// Calls `use` with each sample in a range: its number, and where it begins and ends in the range.
  each(from, to, use) {
    const { time } = this.data.samples;
    const { span, longest } = this.spans;
    for (let at = firstFrom(time, from - longest); at < time.length && time[at] < to; at++) {
      const end = time[at] + span[at];
      if (end > from) use(at, Math.max(time[at], from), Math.min(end, to));
    }
  }

  /// For the lanes from `first` on, each column of a range and each kind: its ticks, or with `isTime` its part of the
  /// column's time. After the kinds comes the part of the stacks in `isMarked`. Hits are given with their weights.
  parts(from, to, columns, first, count, isMarked) {
    const { data, of, lane } = this;
    const { stack, time } = data.samples;
    const { kind } = data.stacks;
    const scale = columns / (to - from);
    const isTime = !data.weights && scale * WIDE * this.spans.period > 1;
    const parts = new Float32Array(count * columns * SIZE);
    const add = (here, kind, at, end) => {
      const low = (at - from) * scale;
      const start = Math.min(columns - 1, Math.floor(low));
      if (!isTime) {
        parts[(here * columns + start) * SIZE + kind] += end;
        return;
      }
      const high = Math.min((end - from) * scale, columns);
      for (let column = start; column < high; column++) {
        parts[(here * columns + column) * SIZE + kind] += Math.min(column + 1, high) - Math.max(column, low);
      }
    };
    this.each(from, to, (at, begin, end) => {
      const here = lane[of[at]] - first;
      if (here < 0 || here >= count) return;
      if (!isTime && time[at] < from) return;
      const last = isTime ? end : data.weights?.[at] ?? 1;
      add(here, kind[stack[at]], isTime ? begin : time[at], last);
      if (isMarked?.[stack[at]]) add(here, LOST + 1, isTime ? begin : time[at], last);
    });
    if (this.by === "cpu" && !data.weights) this.addRest(parts, isTime, [from, to], columns, first, count);
    return { parts, isTime };
  }

  /// Adds the ticks that have no sample; as parts of time they divide what is left of each column.
  addRest(parts, isTime, [from, to], columns, first, count) {
    const { data } = this;
    const rest = isTime ? new Float32Array(parts.length) : parts;
    const scale = columns / (to - from);
    const spread = (cpu, begin, end, ticks) => {
      const here = this.lane[data.cpus.indexOf(cpu)] - first;
      if (!(here >= 0 && here < count) || end === null || end < from || (begin ?? end) > to) return;
      const [low, high] = [((begin ?? end) - from) * scale, (end - from) * scale];
      const until = Math.min(columns - 1, Math.floor(high));
      for (let column = Math.max(0, Math.min(until, Math.floor(low))); column <= until; column++) {
        const part = high > low ? Math.max(0, Math.min(column + 1, high) - Math.max(column, low)) / (high - low) : 1;
        for (const [kind, number] of ticks) rest[(here * columns + column) * SIZE + kind] += number * part;
      }
    };
    for (const [cpu, begin, end, lost] of data.gaps) spread(cpu, begin, end, [[LOST, lost]]);
    for (const [cpu, begin, end, user, idle, kernel] of data.filtered) {
      spread(cpu, begin, end, [[USER, user], [IDLE, idle], [KERNEL, kernel]]);
    }
    if (!isTime) return;
    for (let at = 0; at < parts.length; at += SIZE) {
      const [free, sum] = [this.most - sumOf(parts, at), sumOf(rest, at)];
      if (free < 1e-3 || sum === 0) continue;
      for (let kind = 0; kind <= LOST; kind++) parts[at + kind] += (free * rest[at + kind]) / sum;
    }
  }

  /// The sample that a lane has at a time, or the nearest one within `near`; -1 if there is none.
  sampleAt(lane, micros, near) {
    const { time } = this.data.samples;
    const { span, longest } = this.spans;
    const isHere = (at) => this.lane[this.of[at]] === lane;
    const next = firstFrom(time, micros + 1);
    let before = next - 1;
    while (before >= 0 && time[before] > micros - Math.max(longest, near) && !isHere(before)) before--;
    if (before >= 0 && isHere(before) && time[before] + Math.max(span[before], near) > micros) return before;
    for (let at = next; at < time.length && time[at] <= micros + near; at++) if (isHere(at)) return at;
    return -1;
  }

  /// The sample of a lane that is nearest to a time.
  nearest(lane, micros) {
    const { time } = this.data.samples;
    const begin = firstFrom(time, micros);
    for (let step = 0; step < time.length; step++) {
      for (const at of [begin - step, begin + step]) if (this.lane[this.of[at]] === lane) return at;
    }
    return begin;
  }

  /// The sample of the same lane that is before (-1) or after (1) one; the same if there is none.
  beside(sample, step) {
    const here = this.of[sample];
    for (let at = sample + step; at >= 0 && at < this.of.length; at += step) if (this.of[at] === here) return at;
    return sample;
  }
}

/// Ticks of each kind in the chosen time, on the CPUs that are shown. Losses and filtered ticks are spread evenly over
/// their time, as in `report --between`. Their task is not known of all of them.
function ticksByKind(data, { from, to, hiddenCpus }) {
  const ticks = new Float64Array(LOST + 1);
  const { time, cpu, stack } = data.samples;
  const [begin, end] = [from ?? 0, to ?? data.end];
  const isShown = Uint8Array.from(data.cpus, (number) => !hiddenCpus.has(number));
  const until = firstFrom(time, end);
  for (let at = firstFrom(time, begin); at < until; at++) ticks[data.stacks.kind[stack[at]]] += isShown[cpu[at]];
  const spread = (cpu, low, high, kind, number) => {
    if (hiddenCpus.has(cpu) || high === null) return;
    const first = low ?? high;
    const inside = Math.min(high, end) - Math.max(first, begin);
    if (high > first && inside > 0) ticks[kind] += (number * inside) / (high - first);
    else if (high === first && inside === 0) ticks[kind] += number;
  };
  for (const [cpu, low, high, lost] of data.gaps) spread(cpu, low, high, LOST, lost);
  for (const [cpu, low, high, user, idle, kernel] of data.filtered) {
    spread(cpu, low, high, USER, user);
    spread(cpu, low, high, IDLE, idle);
    spread(cpu, low, high, KERNEL, kernel);
  }
  return ticks;
}
