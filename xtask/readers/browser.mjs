// A browser that is controlled over a pipe with the protocol of its developer tools. In: its path and a folder for its
// profile. Out: functions that open a page, run expressions in it and use its keyboard and pointer. It uses real time,
// so that a page has as much time as it needs on a busy machine.

import { spawn } from "node:child_process";
import { join } from "node:path";

const OPTIONS = ["--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"];

/// Starts the browser. `size` is the size of its window, `WIDTH,HEIGHT`. Returns functions that send a
/// command, listen to all messages, and end the browser; and the lines that pages wrote to their console, with all
/// exceptions.
export function started(browser, folder, size) {
  const words = [...OPTIONS, `--window-size=${size}`, `--user-data-dir=${join(folder, "browser")}`];
  const child = spawn(browser, [...words, "--remote-debugging-pipe", "about:blank"], {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
  });
  const [waiting, said, listeners] = [new Map(), [], []];
  let [rest, number] = ["", 0];
  child.stdio[4].setEncoding("utf8").on("data", (text) => {
    const messages = (rest + text).split("\0");
    rest = messages.pop();
    for (const message of messages.map((one) => JSON.parse(one))) {
      if (message.method === "Runtime.consoleAPICalled") {
        said.push(message.params.args.map((one) => one.value ?? one.description).join(" "));
      }
      if (message.method === "Runtime.exceptionThrown") {
        const { exception, text } = message.params.exceptionDetails;
        said.push(`exception: ${exception?.description ?? text}`);
      }
      listeners.forEach((listener) => listener(message));
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
  const listen = (listener) => listeners.push(listener);
  return { send, said, listen, pages: [], end: () => child.kill("SIGKILL") };
}

/// Opens a page. Returns `send` for this page and `value`, which gives the value of an expression in it.
export async function opened(tab, address) {
  const { send } = tab;
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const here = (method, params = {}) => send(method, params, sessionId);
  tab.pages.push(targetId);
  await here("Runtime.enable");
  await here("Page.enable");
  await here("Page.navigate", { url: address });
  const value = async (expression) => {
    const question = { expression, returnByValue: true, awaitPromise: true };
    const { result, exceptionDetails } = await here("Runtime.evaluate", question);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  return { send: here, value };
}

/// Waits until an expression in the page is true.
export async function until(page, expression, limit = 180_000) {
  const end = Date.now() + limit;
  while (!(await page.value(expression).catch(() => false))) {
    if (Date.now() > end) throw new Error(`never true: ${expression}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/// Closes all pages that were opened.
export async function closed(tab) {
  for (const targetId of tab.pages.splice(0)) await tab.send("Target.closeTarget", { targetId });
}

/// Throws if two values are not the same.
export function same(what, is, must) {
  if (JSON.stringify(is) !== JSON.stringify(must)) {
    throw new Error(`${what}: ${JSON.stringify(is)?.slice(0, 200)}, expected ${JSON.stringify(must)?.slice(0, 200)}`);
  }
}

/// Runs a check in a tab, prints its line, and closes the tab.
export async function check(tab, name, body) {
  try {
    await body();
    console.log(`ok ${name}`);
  } catch (error) {
    console.log(`FAILED ${name}: ${String(error.message).replaceAll("\n", " ").slice(0, 600)}`);
  }
  await closed(tab);
}
