// A choice as the fragment of the page's address, which restores it. In: a choice, or a fragment. Out: the other one.
// Functions, tasks and samples are named by what they are and not by their number, so that a link also fits a page of
// another build: what this page does not have is left out.

/// The settings that have few values.
const VALUES = {
  inline: ["own", "all", "none"], view: ["flame", "icicle", "inverted", "sandwich", "chart"],
  sort: ["self", "total", "name", "change"], lanes: ["cpu", "task"], color: ["kind", "crate", "module"],
  chains: ["apart", "joined"], of: ["samples", "time"],
};

/// The fragment that restores a choice: only what differs from the default.
function toFragment(choice, data) {
  const usual = defaultChoice(data);
  const words = new URLSearchParams();
  if (choice.from !== null) words.set("time", `${choice.from}-${choice.to}`);
  if (choice.weights) words.set("weights", choice.weights.join("-"));
  if (choice.sight) words.set("sight", choice.sight.join("-"));
  const kinds = choice.kinds.map(Number).join("");
  if (kinds !== usual.kinds.map(Number).join("")) words.set("kinds", kinds);
  if (choice.hiddenCpus.size) words.set("hiddenCpus", [...choice.hiddenCpus].sort((a, b) => a - b).join("."));
  for (const task of choice.hiddenTasks) words.append("hiddenTask", data.tasks[task]);
  for (const name of [...Object.keys(VALUES), "search", "filter"]) {
    if (choice[name] !== usual[name]) words.set(name, choice[name]);
  }
  for (const frame of choice.zoom) words.append("zoom", fullName(data, frame));
  if (choice.func !== null) words.set("func", fullName(data, choice.func));
  if (choice.sample !== null) {
    const { time, cpu } = data.samples;
    words.set("sample", `${time[choice.sample]}-${data.cpus[cpu[choice.sample]]}`);
  }
  return words.toString();
}

/// The choice that a fragment restores.
function fromFragment(text, data) {
  const choice = defaultChoice(data);
  const words = new URLSearchParams(text);
  const pair = (name) => {
    const [, one, other] = (/^(\d+)-(\d+)$/.exec(words.get(name) || "") ?? []).map(Number);
    return [one, other];
  };
  const range = (name) => (([from, to]) => (from < to ? [from, to] : null))(pair(name));
  [choice.from, choice.to] = range("time") ?? [null, null];
  if (data.event) choice.weights = range("weights");
  const sight = range("sight");
  if (sight && sight[1] <= data.end) choice.sight = sight;
  const kinds = words.get("kinds") || "";
  if (/^[01]{5}$/.test(kinds)) choice.kinds = [...kinds].map((one) => one === "1");
  const cpus = (words.get("hiddenCpus") || "").split(".").filter((one) => /^\d+$/.test(one)).map(Number);
  cpus.filter((cpu) => data.cpus.includes(cpu)).forEach((cpu) => choice.hiddenCpus.add(cpu));
  words.getAll("hiddenTask").map((task) => data.tasks.indexOf(task)).filter((at) => at >= 0)
    .forEach((at) => choice.hiddenTasks.add(at));
  for (const [name, values] of Object.entries(VALUES)) {
    if (values.includes(words.get(name))) choice[name] = words.get(name);
  }
  choice.search = words.get("search") || "";
  choice.filter = words.get("filter") || "";
  const frames = words.getAll("zoom").map((name) => frameOf(data, name));
  choice.zoom = frames.slice(0, frames.includes(null) ? frames.indexOf(null) : undefined);
  choice.func = words.has("func") ? frameOf(data, words.get("func")) : null;
  const [micros, cpu] = pair("sample");
  const { samples } = data;
  for (let at = firstFrom(samples.time, micros ?? 0); at < samples.time.length && samples.time[at] === micros; at++) {
    if (data.cpus[samples.cpu[at]] === cpu) choice.sample = at;
  }
  return choice;
}

/// The function of this name; null if the page has none.
const frameOf = (data, name) => data.byName.get(name) ?? null;
