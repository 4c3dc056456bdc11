// What the user has chosen, and what is left of the samples then. In: `data`. Out: samples per stack (of an event,
// their weights), and the losses in the chosen time.

/// The choice when the page is opened without a fragment.
function defaultChoice(data) {
  const kinds = KINDS.map((_, kind) => kind !== USER || data.user);
  return {
    from: null, to: null, weights: null, sight: null, sample: null, lanes: "cpu", kinds, hiddenCpus: new Set(),
    hiddenTasks: new Set(), inline: data.inline, view: "flame", color: "kind", chains: "apart", of: "samples",
    search: "", filter: "", sort: data.old ? "change" : "self", zoom: [], func: null,
  };
}

/// The first sample whose time is not before `micros`.
function firstFrom(time, micros) {
  let [low, high] = [0, time.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (time[middle] < micros) low = middle + 1;
    else high = middle;
  }
  return low;
}

/// Samples per stack, or their weights. `cpus` and `tasks` are those of each CPU and task in the chosen time, hidden
/// ones too; `hits` is the number of samples. `beside` is what is shown besides them.
function count(data, choice) {
  const { time, cpu, stack, task } = data.samples;
  const { weights } = data;
  const Sums = weights ? Float64Array : Uint32Array;
  const counts = new Sums(data.stacks.kind.length);
  const shown = Uint8Array.from(data.stacks.kind, (kind) => choice.kinds[kind]);
  const cpuShown = Uint8Array.from(data.cpus, (number) => !choice.hiddenCpus.has(number));
  const taskShown = Uint8Array.from(data.tasks, (_, at) => !choice.hiddenTasks.has(at));
  const [cpus, tasks] = [new Sums(data.cpus.length), new Sums(data.tasks.length)];
  const [from, to] = choice.from === null ? [0, time.length]
    : [firstFrom(time, choice.from), firstFrom(time, choice.to)];
  let [samples, hits] = [0, 0];
  // Samples have a loop of their own, because it is faster with whole numbers only.
  if (weights) {
    for (let at = from; at < to; at++) {
      const one = stack[at];
      const weight = weights[at];
      if (!shown[one] || !isInside(choice.weights, weight)) continue;
      cpus[cpu[at]] += weight;
      tasks[task[at]] += weight;
      if (!cpuShown[cpu[at]] || !taskShown[task[at]]) continue;
      counts[one] += weight;
      samples += weight;
      hits++;
    }
  } else {
    for (let at = from; at < to; at++) {
      const one = stack[at];
      const here = cpu[at];
      const who = task[at];
      const is = shown[one];
      cpus[here] += is;
      tasks[who] += is;
      const counted = is & cpuShown[here] & taskShown[who];
      counts[one] += counted;
      samples += counted;
    }
    hits = samples;
  }
  let [old, oldSamples] = [null, 0];
  if (data.old) {
    old = data.oldCounts.map((number, at) => (shown[at] ? number : 0));
    oldSamples = old.reduce((sum, number) => sum + number, 0);
  }
  const beside = data.event ? besideHits(data, choice) : [lost(data, choice)];
  return { counts, samples, hits, cpus, tasks, lost: beside[0], beside, old, oldSamples };
}

/// Calls `use` with the number of each chosen sample.
function eachChosen(data, choice, use) {
  const isShown = isChosen(data, choice);
  const [from, to] = choice.from === null ? [0, Infinity] : [choice.from, choice.to];
  const { time } = data.samples;
  for (let at = firstFrom(time, from); at < time.length && time[at] < to; at++) if (isShown(at)) use(at);
}

/// Whether a weight is in the chosen ones.
const isInside = (chosen, weight) => !chosen || (weight >= chosen[0] && weight < chosen[1]);

/// Whether a sample is of the chosen kinds, CPUs and tasks.
function isChosen(data, { kinds, hiddenCpus, hiddenTasks, weights }) {
  const { cpu, task, stack } = data.samples;
  const isCpuShown = data.cpus.map((cpu) => !hiddenCpus.has(cpu));
  return (at) => kinds[data.stacks.kind[stack[at]]] && isCpuShown[cpu[at]] && !hiddenTasks.has(task[at]) &&
    isInside(weights, data.weights?.[at]);
}

/// Weights of lost hits and of those that were not recorded. Of these sums no time and no single weight is known, so
/// they are only in the whole recording. Those whose CPU is not known are only in that of all CPUs, and of hits that
/// were not recorded no task is known.
function besideHits(data, choice) {
  const sums = [0, 0];
  for (const [cpu, at, weight] of choice.from === null && !choice.weights ? data.event.beside : []) {
    const isShown = cpu === null ? !choice.hiddenCpus.size : !choice.hiddenCpus.has(cpu);
    if (isShown && (at === 0 || !choice.hiddenTasks.size)) sums[at] += weight;
  }
  return sums;
}

/// Losses in the chosen time, in whole samples, as `report --between` computes them: each loss is spread evenly over
/// its time. They cannot be attributed to a task.
function lost(data, choice) {
  const bound = (micros) => (BigInt(micros) * BigInt(data.tscHz) + 500_000n) / 1_000_000n;
  let sum = 0n;
  for (const [cpu, , , samples, fromText, toText] of data.gaps) {
    if (choice.hiddenCpus.has(cpu)) continue;
    const end = toText ?? fromText;
    if (choice.from === null || data.boots > 1) {
      sum += BigInt(samples);
    } else if (end !== null) {
      const to = BigInt(end);
      let from = BigInt(fromText ?? end);
      if (from > to) from = to;
      const [first, until] = [bound(choice.from), bound(choice.to)];
      const inside = (to + 1n < until ? to + 1n : until) - (from > first ? from : first);
      const whole = to - from + 1n;
      if (inside > 0n) sum += (BigInt(samples) * inside + whole / 2n) / whole;
    }
  }
  return Number(sum);
}
