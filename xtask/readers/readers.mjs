// Opens the exports of kprof-fold with other projects' readers, and compares what they show with the folded stacks.
//
// In: the folder of the exports (`firefox`, `speedscope`, `pprof`, `perfetto`; `folded-N` for each CPU, `task-N-NAME`
// for each of its tasks; of a heap `FORM-heap` and `heap.folded`; of the hits of a point, whose weights are times,
// `FORM-event`, `event.folded`, and for each CPU `event-N.folded` by task), a browser's path or `-`, and the folder of
// Perfetto's page or `-`. Out: a line per check: `ok NAME`, `FAILED NAME: WHY`, `skipped NAME: WHY`.

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join, normalize } from "node:path";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";
import { opened, started } from "./browser.mjs";

const [folder, browser, perfettoPage] = process.argv.slice(2).map((word) => (word === "-" ? undefined : word));
const require = createRequire(pathToFileURL(join(process.cwd(), "package.json")));
const modules = join(process.cwd(), "node_modules");

/// A map from stack to count, as kprof-fold folds it.
function folded(name) {
  const stacks = new Map();
  for (const line of readFileSync(join(folder, name), "utf8").split("\n").filter((line) => line)) {
    const space = line.lastIndexOf(" ");
    stacks.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  return stacks;
}

/// The map of each CPU, and of each task of each CPU.
const expected = new Map();
const tasks = new Map();
for (const name of readdirSync(folder)) {
  if (name.startsWith("folded-")) expected.set(Number(name.slice("folded-".length)), folded(name));
  const task = name.match(/^task-(\d+)-(.*)$/);
  if (task) tasks.set(`CPU ${task[1]}/${task[2]}`, folded(name));
}
const cpus = [...expected.keys()].sort((a, b) => a - b);
const sum = (stacks) => [...stacks.values()].reduce((a, b) => a + b, 0);

/// The stacks of each task of each CPU in the folded hits of a point, with `[lost]` and `[not recorded]` as tasks.
function hits() {
  const threads = new Map();
  for (const cpu of [1, 2]) {
    for (const [stack, weight] of folded(`event-${cpu}.folded`)) {
      const [task, ...frames] = stack.split(";");
      const name = `CPU ${cpu}/${task}`;
      if (!threads.has(name)) threads.set(name, new Map());
      threads.get(name).set(frames.length > 0 ? frames.join(";") : task, weight);
    }
  }
  // What is lost on CPUs without memory is in the whole only.
  const all = [...threads.values()].reduce((so_far, stacks) => so_far + sum(stacks), 0);
  return threads.set("kernel/[lost]", new Map([["[lost]", sum(folded("event.folded")) - all]]));
}

/// Self and total samples by function.
function functions(stacks) {
  const found = new Map();
  const of = (name) => found.get(name) ?? found.set(name, { self: 0, total: 0 }).get(name);
  for (const [stack, count] of stacks) {
    const frames = stack.split(";");
    of(frames.at(-1)).self += count;
    new Set(frames).forEach((name) => (of(name).total += count));
  }
  return found;
}

function same(what, is, must) {
  if (is !== must) throw new Error(`${what}: ${is}, in the folded stacks ${must}`);
}

async function check(name, body) {
  try {
    const skipped = await body();
    console.log(skipped ? `skipped ${name}: ${skipped}` : `ok ${name}`);
  } catch (error) {
    console.log(`FAILED ${name}: ${String(error.message).replaceAll("\n", " ").slice(0, 500)}`);
  }
}

await check("pprof, decoded by pprof-format", () => {
  const { Profile } = require("pprof-format");
  const profile = Profile.decode(gunzipSync(readFileSync(join(folder, "pprof"))));
  const text = (number) => profile.stringTable.strings[Number(number)];
  same("kind of value", text(profile.sampleType[0].type), "samples");
  same("unit", text(profile.sampleType[0].unit), "count");
  const by = (list) => new Map(list.map((one) => [String(one.id), one]));
  const [locations, named] = [by(profile.location), by(profile.function)];
  const frame = (id) => text(named.get(String(locations.get(String(id)).line[0].functionId)).name);
  const found = new Map(cpus.map((cpu) => [cpu, new Map()]));
  for (const sample of profile.sample) {
    const labels = new Map(sample.label.map((label) => [text(label.key), label]));
    if (!text(labels.get("task").str)) throw new Error("a sample has no label task");
    const stacks = found.get(Number(labels.get("cpu").num));
    const stack = sample.locationId.map(frame).reverse().join(";");
    stacks.set(stack, (stacks.get(stack) ?? 0) + Number(sample.value[0]));
  }
  for (const cpu of cpus) {
    same(`stacks of CPU ${cpu}`, found.get(cpu).size, expected.get(cpu).size);
    expected.get(cpu).forEach((count, stack) => same(`CPU ${cpu}, ${stack}`, found.get(cpu).get(stack), count));
  }
});

await check("speedscope, by its published schema", () => {
  const Ajv = require("ajv").default;
  const schema = JSON.parse(readFileSync(join(modules, "speedscope/dist/release/file-format-schema.json")));
  const validate = new Ajv({ strict: false }).compile(schema);
  const heap = JSON.parse(readFileSync(join(folder, "speedscope-heap")));
  if (!validate(heap)) throw new Error(JSON.stringify(validate.errors.slice(0, 3)));
  same("bytes that were not freed", heap.profiles[3].endValue, sum(folded("heap.folded")));
  const profile = JSON.parse(readFileSync(join(folder, "speedscope")));
  if (!validate(profile)) throw new Error(JSON.stringify(validate.errors.slice(0, 3)));
  for (const [at, cpu] of cpus.entries()) {
    const one = profile.profiles[at];
    same(`unit of CPU ${cpu}`, one.unit, "microseconds");
    // Time in which nothing was sampled is an empty stack.
    same(`samples of CPU ${cpu}`, one.samples.filter((stack) => stack.length > 0).length, sum(expected.get(cpu)));
    same(`weights of CPU ${cpu}`, one.weights.length, one.samples.length);
  }
  // A schema that accepts everything would prove nothing, so it must refuse an unknown type.
  profile.profiles[0].type = "no such type";
  if (validate(profile)) throw new Error("the schema takes a profile of an unknown type");
});

/// Compares what the Firefox Profiler's command line tool shows of each thread with folded stacks. A folded number is
/// `worth` of the reader's.
async function firefox(file, threads, kind, worth) {
  const home = join(folder, "home");
  mkdirSync(home, { recursive: true });
  const program = join(modules, "@firefox-devtools/profiler-cli/dist/profiler-cli.js");
  const env = { ...process.env, HOME: home, USERPROFILE: home };
  const cli = (...words) =>
    execFileSync(process.execPath, [program, ...words], { env, encoding: "utf8", timeout: 300_000, stdio: "pipe", maxBuffer: 1 << 28 });
  writeFileSync(join(folder, `${file}.json`), readFileSync(join(folder, file)));
  const session = ["--session", file];
  const functionsOf = (at) => JSON.parse(cli("thread", "functions", "--thread", `t-${at}`, ...session, "--limit", "0", "--json"));
  // The program gives its daemon half a second to start, in which a busy machine may not run it at all. The daemon
  // starts nevertheless, so it is asked until it answers.
  const until = Date.now() + 180_000;
  let failure;
  try {
    cli("load", join(folder, `${file}.json`), ...session);
  } catch (error) {
    failure = error;
  }
  while (failure) {
    try {
      functionsOf(0);
      break;
    } catch {
      if (Date.now() > until) throw failure;
      await new Promise((done) => setTimeout(done, 500));
    }
  }
  try {
    // The exported threads are those of the tasks of each CPU.
    const exported = JSON.parse(readFileSync(join(folder, file))).threads;
    same("number of threads", exported.length, threads.size);
    for (const [at, { processName, name }] of exported.entries()) {
      const thread = functionsOf(at);
      same("name of the thread", thread.friendlyThreadName, name);
      same("kind of weight", thread.weightType, kind);
      const must = functions(threads.get(`${processName}/${name}`));
      same(`functions of ${name} on ${processName}`, thread.functions.length, must.size);
      for (const one of thread.functions) {
        same(`self samples of ${one.name}`, Math.round(one.selfSamples / worth), must.get(one.name)?.self);
        same(`samples of ${one.name}`, Math.round(one.totalSamples / worth), must.get(one.name)?.total);
      }
    }
  } finally {
    cli("stop", ...session);
  }
}

await check("Firefox Profiler, by its own command line tool", () => firefox("firefox", tasks, "samples", 1));
await check("Firefox Profiler, with the hits of a point", () => firefox("firefox-event", hits(), "tracing-ms", 1e-6));
await check("Firefox Profiler, with the bytes of a heap", () => {
  return firefox("firefox-heap", new Map([["kernel/heap.live", folded("heap.folded")]]), "bytes", 1);
});

/// Opens a file in speedscope's sandwich view. Returns the text of the page, and what it wrote to its console.
async function speedscope(name) {
  const script = join(folder, `${name}.js`);
  const bytes = readFileSync(join(folder, name)).toString("base64");
  writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(`${name}.json`)}, "${bytes}")`);
  const page = pathToFileURL(join(modules, "speedscope/dist/release/index.html"));
  const tab = started(browser, folder, "1600,6000");
  const { said } = tab;
  try {
    const { value } = await opened(tab, `${page}#view=sandwich&localProfilePath=${script}`);
    const until = Date.now() + 180_000;
    for (let [html, before] = ["", null]; ; before = html) {
      await new Promise((done) => setTimeout(done, 1_000));
      html = await value("document.documentElement.outerHTML");
      // The import has ended, and nothing has changed for a second.
      const is_shown = said.some((line) => line.startsWith("import: ")) && html === before;
      if (is_shown || Date.now() > until) return { lines: lines_of(html), console: said };
    }
  } finally {
    tab.end();
  }
}

function lines_of(html) {
  const entities = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&nbsp;": " " };
  const text = html.replace(/<(style|script).*?<\/\1>/gs, "").replace(/<[^>]+>/g, "\n");
  const lines = text.replace(/&[a-z]+;/g, (one) => entities[one] ?? one).split("\n").map((line) => line.trim());
  return lines.filter((line) => line);
}

/// Compares the rows that speedscope's table shows (total, self, name) with the folded stacks. Numbers are rounded to
/// two digits after the point, such as 1.23ms (4.5%). `units` has the worth of each unit, `each` that of one sample.
function rows(lines, must, units, each) {
  const near = (what, text, samples) => {
    const [, digits, unit] = text.match(/^([\d.]+) ?([µA-Za-z]+) \(/) ?? [];
    if (!(Math.abs(Number(digits) * units[unit] - samples * each) <= 0.0051 * units[unit])) {
      throw new Error(`${what}: ${text}, in the folded stacks ${samples} times ${each}`);
    }
  };
  // Only rows on the screen are in the page.
  let shown = 0;
  for (const [at, name] of lines.entries()) {
    if (must.has(name) && /%\)$/.test(lines[at - 1]) && /%\)$/.test(lines[at - 2])) {
      if (must.get(name).self > 0) near(`self time of ${name}`, lines[at - 1], must.get(name).self);
      near(`time of ${name}`, lines[at - 2], must.get(name).total);
      shown += 1;
    }
  }
  if (shown < Math.min(20, must.size)) throw new Error(`only ${shown} rows are shown: ${lines.slice(0, 20).join(" ")}`);
}

await check("speedscope, opened in its own page", async () => {
  if (!browser) return "no browser";
  const { lines } = await speedscope("speedscope");
  const exported = JSON.parse(readFileSync(join(folder, "speedscope"))).profiles[0];
  const period = exported.weights[exported.samples.findIndex((stack) => stack.length > 0)];
  rows(lines, functions(expected.get(cpus[0])), { µs: 1, ms: 1e3, s: 1e6 }, period);
});

await check("speedscope, opened in its own page, with the bytes of a heap", async () => {
  if (!browser) return "no browser";
  const { lines } = await speedscope("speedscope-heap");
  rows(lines, functions(folded("heap.folded")), { B: 1, KB: 1024, MB: 1024 ** 2 }, 1);
});

/// Serves the files of a folder to this machine. Returns the address and a function that ends it.
async function served(root) {
  const types = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".wasm": "application/wasm" };
  const server = createServer((request, response) => {
    const path = join(root, normalize(decodeURIComponent(new URL(request.url, "http://localhost").pathname)));
    const file = path.endsWith("/") ? join(path, "index.html") : path;
    if (!existsSync(file)) return response.writeHead(404).end();
    response.writeHead(200, { "content-type": types[extname(file)] ?? "application/octet-stream" });
    response.end(readFileSync(file));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  return { address: `http://127.0.0.1:${server.address().port}`, end: () => server.close() };
}

/// Opens a trace in Perfetto's page, and gives `body` a function that asks its trace processor. Returns why it was not
/// opened, if it was not.
async function perfetto(file, body) {
  if (!browser) return "no browser";
  if (!perfettoPage) return "no page of Perfetto";
  const page = await served(perfettoPage);
  const tab = started(browser, folder, "1600,6000");
  try {
    const { value: run } = await opened(tab, page.address);
    const until = Date.now() + 180_000;
    const wait = async (what, expression) => {
      while (!(await run(expression))) {
        if (Date.now() > until) throw new Error(`no ${what} after three minutes`);
        await new Promise((done) => setTimeout(done, 500));
      }
    };
    await wait("page", "Boolean(window.app)");
    const bytes = readFileSync(join(folder, file)).toString("base64");
    await run(`fetch("data:;base64,${bytes}").then((got) => got.arrayBuffer()).then((buffer) => {
      app.openTraceFromBuffer({ buffer, title: "kprof", fileName: "kprof.pftrace" });
    }), true`);
    await wait("trace", "Boolean(app.trace?.engine)");
    const rows = (sql, columns) =>
      run(`app.trace.engine.query(${JSON.stringify(sql)}).then((result) => {
        const all = [];
        for (const row = result.iter({}); row.valid(); row.next()) {
          all.push(${JSON.stringify(columns)}.map((name) => row.get(name)).map((one) => (typeof one === "bigint" ? Number(one) : one)));
        }
        return all;
      })`);
    const faults = await rows("select name, value from stats where severity in ('error', 'data_loss') and value > 0", ["name", "value"]);
    same("faults", JSON.stringify(faults), "[]");
    await body(rows);
  } finally {
    tab.end();
    page.end();
  }
}

/// The stack of each call site, as the table `stacks`.
const stacksTable = `recursive up(leaf, id, parent, frame, depth) as (
    select id, id, parent_id, frame_id, depth from stack_profile_callsite
    union all select up.leaf, c.id, c.parent_id, c.frame_id, c.depth
      from up join stack_profile_callsite c on c.id = up.parent
  ), stacks as (
    select leaf, group_concat(name, ';') as stack from (
      select leaf, f.name as name from up join stack_profile_frame f on f.id = up.frame order by leaf, depth)
    group by leaf
  )`;

await check("Perfetto, opened in its own page and asked by its trace processor", () =>
  perfetto("perfetto", async (rows) => {
    const sql = `with ${stacksTable} select cpu, thread.name as task, stack, count(*) as count
      from perf_sample join stacks on leaf = callsite_id join thread using (utid) group by cpu, task, stack`;
    const found = new Map();
    for (const [cpu, task, stack, count] of await rows(sql, ["cpu", "task", "stack", "count"])) {
      found.set(`CPU ${cpu}/${task} ${stack}`, count);
    }
    let stacks = 0;
    for (const [task, must] of tasks) {
      must.forEach((count, stack) => same(`${task}, ${stack}`, found.get(`${task} ${stack}`), count));
      stacks += must.size;
    }
    same("stacks", found.size, stacks);
  }),
);

await check("Perfetto, with the hits of a point", () =>
  perfetto("perfetto-event", async (rows) => {
    // A hit is the slice and the sample of a thread that end at the same time.
    const sql = `with ${stacksTable}, hits as (
        select ts + dur as at, dur, utid, extract_arg(arg_set_id, 'debug.weight') as weight,
          extract_arg(arg_set_id, 'debug.stands for') as scaled, extract_arg(arg_set_id, 'debug.CPU') as cpu
        from slice join thread_track on thread_track.id = slice.track_id where slice.name = 'lock.wait'
      ) select hits.cpu as cpu, thread.name as task, stack, sum(coalesce(scaled, weight)) as sum,
        sum(dur <> weight) as wrong from hits join thread using (utid)
        join perf_sample s on s.ts = hits.at and s.utid = hits.utid and s.cpu = hits.cpu
        join stacks on leaf = s.callsite_id group by hits.cpu, task, stack`;
    const columns = ["cpu", "task", "stack", "sum", "wrong"];
    const found = new Map();
    for (const [cpu, task, stack, weight, wrong] of await rows(sql, columns)) {
      same(`slices of ${task} that are not as long as their weight`, wrong, 0);
      found.set(`CPU ${cpu}/${task} ${stack}`, weight);
    }
    const beside = `select track.name as name, extract_arg(arg_set_id, 'debug.weight') as weight
      from slice join track on track.id = slice.track_id where slice.name in ('[lost]', '[not recorded]')`;
    for (const [name, weight] of await rows(beside, ["name", "weight"])) {
      const [, cpu, what] = name.match(/^(.*) (\[.*\])$/);
      found.set(`${cpu === "CPU not known" ? "kernel" : cpu}/${what} ${what}`, weight);
    }
    let stacks = 0;
    for (const [task, must] of hits()) {
      must.forEach((weight, stack) => same(`${task}, ${stack}`, found.get(`${task} ${stack}`), weight));
      stacks += must.size;
    }
    same("stacks", found.size, stacks);
  }),
);

await check("Perfetto, with a heap", () =>
  perfetto("perfetto-heap", async (rows) => {
    const sql = `with ${stacksTable} select stack, sum(size) as live, sum(count) as number, sum(max(size, 0)) as bytes
      from heap_profile_allocation join stacks on leaf = callsite_id group by stack`;
    const found = await rows(sql, ["stack", "live", "number", "bytes"]);
    const must = folded("heap.folded");
    same("stacks", found.length, must.size);
    for (const [stack, live, number, bytes] of found) {
      same(`bytes of ${stack} that were not freed`, live, must.get(stack));
      if (!(number > 0 && bytes >= live)) throw new Error(`${stack}: ${number} allocations, ${bytes} bytes`);
    }
  }),
);
