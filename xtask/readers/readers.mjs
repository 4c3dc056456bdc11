// Opens the exports of kprof-fold with other projects' readers, and compares what they show with the folded stacks.
//
// In: the folder of the exports (`firefox`, `speedscope`, `pprof`, `perfetto`; `folded-N` for each CPU), and a
// browser's path or nothing. Out: a line per check: `ok NAME`, `FAILED NAME: WHY`, `skipped NAME: WHY`.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { gunzipSync } from "node:zlib";

const [folder, browser] = process.argv.slice(2);
const require = createRequire(pathToFileURL(join(process.cwd(), "package.json")));
const modules = join(process.cwd(), "node_modules");

/// For each CPU a map from stack to count, as kprof-fold folds it.
const expected = new Map();
for (const name of readdirSync(folder).filter((name) => name.startsWith("folded-"))) {
  const stacks = new Map();
  for (const line of readFileSync(join(folder, name), "utf8").split("\n").filter((line) => line)) {
    const space = line.lastIndexOf(" ");
    stacks.set(line.slice(0, space), Number(line.slice(space + 1)));
  }
  expected.set(Number(name.slice("folded-".length)), stacks);
}
const cpus = [...expected.keys()].sort((a, b) => a - b);
const sum = (stacks) => [...stacks.values()].reduce((a, b) => a + b, 0);

/// Self and total samples by function.
function functions(stacks) {
  const found = new Map();
  const of = (name) => found.get(name) ?? found.set(name, { own: 0, total: 0 }).get(name);
  for (const [stack, count] of stacks) {
    const frames = stack.split(";");
    of(frames.at(-1)).own += count;
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
  const profile = JSON.parse(readFileSync(join(folder, "speedscope")));
  if (!validate(profile)) throw new Error(JSON.stringify(validate.errors.slice(0, 3)));
  cpus.forEach((cpu, at) => same(`samples of CPU ${cpu}`, profile.profiles[at].samples.length, sum(expected.get(cpu))));
  // A schema that accepts everything would prove nothing, so it must refuse an unknown type.
  profile.profiles[0].type = "no such type";
  if (validate(profile)) throw new Error("the schema takes a profile of an unknown type");
});

await check("Firefox Profiler, by its own command line tool", async () => {
  const home = join(folder, "home");
  mkdirSync(home, { recursive: true });
  const program = join(modules, "@firefox-devtools/profiler-cli/dist/profiler-cli.js");
  const env = { ...process.env, HOME: home, USERPROFILE: home };
  const cli = (...words) =>
    execFileSync(process.execPath, [program, ...words], { env, encoding: "utf8", timeout: 300_000, stdio: "pipe", maxBuffer: 1 << 28 });
  writeFileSync(join(folder, "firefox.json"), readFileSync(join(folder, "firefox")));
  const session = ["--session", "exported"];
  const functionsOf = (at) => JSON.parse(cli("thread", "functions", "--thread", `t-${at}`, ...session, "--limit", "0", "--json"));
  // The program gives its daemon half a second to start, in which a busy machine may not run it at all. The daemon
  // starts nevertheless, so it is asked until it answers.
  const until = Date.now() + 180_000;
  let failure;
  try {
    cli("load", join(folder, "firefox.json"), ...session);
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
    for (const [at, cpu] of cpus.entries()) {
      const thread = functionsOf(at);
      same("name of the thread", thread.friendlyThreadName, `CPU ${cpu}`);
      const must = functions(expected.get(cpu));
      same(`functions on CPU ${cpu}`, thread.functions.length, must.size);
      for (const one of thread.functions) {
        same(`own samples of ${one.name}`, one.selfSamples, must.get(one.name)?.own);
        same(`samples of ${one.name}`, one.totalSamples, must.get(one.name)?.total);
      }
    }
  } finally {
    cli("stop", ...session);
  }
});

/// Starts a browser that is controlled over a pipe with the protocol of its developer tools. It uses real time, so that
/// a page has as much time as it needs on a busy machine. Returns a function that sends a command, the lines that the
/// page wrote to its console, and a function that ends the browser.
function started() {
  const options = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files", "--window-size=1600,6000"];
  const words = [...options, `--user-data-dir=${join(folder, "browser")}`, "--remote-debugging-pipe", "about:blank"];
  const child = spawn(browser, words, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const [waiting, said] = [new Map(), []];
  let [rest, number] = ["", 0];
  child.stdio[4].setEncoding("utf8").on("data", (text) => {
    const messages = (rest + text).split("\0");
    rest = messages.pop();
    for (const message of messages.map((one) => JSON.parse(one))) {
      if (message.method === "Runtime.consoleAPICalled") {
        said.push(message.params.args.map((one) => one.value ?? one.description).join(" "));
      }
      waiting.get(message.id)?.(message);
      waiting.delete(message.id);
    }
  });
  const gone = new Promise((_, failed) => child.once("exit", () => failed(new Error("the browser has ended"))));
  gone.catch(() => {});
  const ask = (method, params, sessionId) =>
    new Promise((done, failed) => {
      number += 1;
      waiting.set(number, ({ result, error }) => {
        error ? failed(new Error(`${method}: ${error.message}`)) : done(result);
      });
      child.stdio[3].write(`${JSON.stringify({ id: number, method, params, sessionId })}\0`);
    });
  const send = (...words) => Promise.race([ask(...words), gone]);
  return { send, said, end: () => child.kill("SIGKILL") };
}

/// Opens a file in speedscope's sandwich view. Returns the text of the page, and what it wrote to its console.
async function speedscope(name) {
  const script = join(folder, `${name}.js`);
  const bytes = readFileSync(join(folder, name)).toString("base64");
  writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(`${name}.json`)}, "${bytes}")`);
  const page = pathToFileURL(join(modules, "speedscope/dist/release/index.html"));
  const { send, said, end } = started();
  try {
    const { targetId } = await send("Target.createTarget", { url: "about:blank" });
    const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
    await send("Runtime.enable", {}, sessionId);
    await send("Page.navigate", { url: `${page}#view=sandwich&localProfilePath=${script}` }, sessionId);
    const until = Date.now() + 180_000;
    for (let [html, before] = ["", null]; ; before = html) {
      await new Promise((done) => setTimeout(done, 1_000));
      const expression = "document.documentElement.outerHTML";
      html = (await send("Runtime.evaluate", { expression, returnByValue: true }, sessionId)).result.value;
      // The import has ended, and nothing has changed for a second.
      const is_shown = said.some((line) => line.startsWith("import: ")) && html === before;
      if (is_shown || Date.now() > until) return { lines: lines_of(html), console: said };
    }
  } finally {
    end();
  }
}

function lines_of(html) {
  const entities = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&nbsp;": " " };
  const text = html.replace(/<(style|script).*?<\/\1>/gs, "").replace(/<[^>]+>/g, "\n");
  const lines = text.replace(/&[a-z]+;/g, (one) => entities[one] ?? one).split("\n").map((line) => line.trim());
  return lines.filter((line) => line);
}

await check("speedscope, opened in its own page", async () => {
  if (!browser) return "no browser";
  const { lines } = await speedscope("speedscope");
  const number = (text) => Number(text.split(" ")[0].replaceAll(",", ""));
  for (const cpu of cpus) {
    const weight = lines.findIndex((line, at) => line === `CPU ${cpu}` && /^[\d,]+$/.test(lines[at + 1] ?? ""));
    same(`weight of CPU ${cpu}`, weight >= 0 && number(lines[weight + 1]), sum(expected.get(cpu)));
  }
  // The columns of the table are total, self, name. Only rows on the screen are in the page.
  const must = functions(expected.get(cpus[0]));
  let rows = 0;
  for (const [at, name] of lines.entries()) {
    if (must.has(name) && /%\)$/.test(lines[at - 1]) && /%\)$/.test(lines[at - 2])) {
      same(`own samples of ${name}`, number(lines[at - 1]), must.get(name).own);
      same(`samples of ${name}`, number(lines[at - 2]), must.get(name).total);
      rows += 1;
    }
  }
  if (rows < Math.min(20, must.size)) throw new Error(`only ${rows} rows are shown: ${lines.slice(0, 20).join(" ")}`);
});

await check("Perfetto's JSON trace, opened in speedscope's page", async () => {
  if (!browser) return "no browser";
  const { lines, console: said } = await speedscope("perfetto");
  // The importer writes to the console what is wrong in a trace. All other messages are from the browser itself, such
  // as that there is no GPU. Whether the page could be drawn is judged by its contents.
  for (const trouble of ["Tried to end", "was still open"]) {
    const line = said.find((line) => line.includes(trouble));
    if (line) throw new Error(line);
  }
  const failure = lines.find((line) => line.includes("Something went wrong"));
  if (failure) throw new Error(failure);
  for (const cpu of cpus) {
    if (!lines.some((line) => line.includes(`CPU ${cpu} `))) throw new Error(`no track for CPU ${cpu}`);
  }
  const names = functions(expected.get(cpus[0]));
  const shown = lines.filter((line) => names.has(line)).length;
  if (shown < Math.min(20, names.size)) throw new Error(`only ${shown} functions are shown`);
});
