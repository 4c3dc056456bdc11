// What the user has chosen, and what is left of the samples then. In: `data`, and the fragment of the page's address,
// which holds the whole choice. Out: samples per stack (of an event, their weights), and the losses in the chosen time.

/// The choice when the page is opened without a fragment.
function defaultChoice(data) {
  const kinds = KINDS.map((_, kind) => kind !== USER || data.user);
  return {
    from: null, to: null, kinds, hiddenCpus: new Set(), hiddenTasks: new Set(), inline: data.inline, view: "flame",
    search: "", filter: "", sort: "self", zoom: [], func: null,
  };
}

/// The fragment that restores a choice: only what differs from the default.
function toFragment(choice, data) {
  const usual = defaultChoice(data);
  const words = new URLSearchParams();
  if (choice.from !== null) words.set("time", `${choice.from}-${choice.to}`);
  const kinds = choice.kinds.map(Number).join("");
  if (kinds !== usual.kinds.map(Number).join("")) words.set("kinds", kinds);
  for (const name of ["hiddenCpus", "hiddenTasks"]) {
    if (choice[name].size) words.set(name, [...choice[name]].sort((a, b) => a - b).join("."));
  }
  for (const name of ["inline", "view", "search", "filter", "sort"]) {
    if (choice[name] !== usual[name]) words.set(name, choice[name]);
  }
  if (choice.zoom.length) words.set("zoom", choice.zoom.join("."));
  if (choice.func !== null) words.set("func", choice.func);
  return words.toString();
}

/// The choice that a fragment restores. What the page does not have is left out.
function fromFragment(text, data) {
  const choice = defaultChoice(data);
  const words = new URLSearchParams(text);
  const numbers = (name) => (words.get(name) || "").split(".").filter((one) => /^\d+$/.test(one)).map(Number);
  const time = /^(\d+)-(\d+)$/.exec(words.get("time") || "");
  if (time && Number(time[1]) < Number(time[2])) [choice.from, choice.to] = [Number(time[1]), Number(time[2])];
  const kinds = words.get("kinds") || "";
  if (/^[01]{5}$/.test(kinds)) choice.kinds = [...kinds].map((one) => one === "1");
  numbers("hiddenCpus").filter((cpu) => data.cpus.includes(cpu)).forEach((cpu) => choice.hiddenCpus.add(cpu));
  numbers("hiddenTasks").filter((task) => task < data.tasks.length).forEach((task) => choice.hiddenTasks.add(task));
  const among = { inline: ["own", "all", "none"], view: ["flame", "icicle", "inverted", "sandwich"],
    sort: ["self", "total", "name", "change"] };
  for (const [name, values] of Object.entries(among)) {
    if (values.includes(words.get(name))) choice[name] = words.get(name);
  }
  choice.search = words.get("search") || "";
  choice.filter = words.get("filter") || "";
  choice.zoom = numbers("zoom").filter((frame) => frame < data.names.length);
  const [func] = numbers("func");
  if (func < data.names.length) choice.func = func;
  return choice;
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
      if (!shown[one]) continue;
      const weight = weights[at];
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

/// Weights of lost hits and of those that were not recorded. Of these sums no time is known, so they are only in the
/// whole recording. Those whose CPU is not known are only in that of all CPUs, and of hits that were not recorded no
/// task is known.
function besideHits(data, choice) {
  const sums = [0, 0];
  for (const [cpu, at, weight] of choice.from === null ? data.event.beside : []) {
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
