// Measures how fast a page of `kprof-fold html` is in a browser.
//
// In: a folder for the browser, the page, the browser's path. Out: one line of JSON: the milliseconds from the start of
// the navigation until everything is drawn, for each opening; those from a new range until it is on the screen; those
// of a frame while the lanes are zoomed and moved; and the samples, stacks and functions of the page.

import { pathToFileURL } from "node:url";
import { closed, opened, started, until } from "./browser.mjs";

const [folder, file, browser] = process.argv.slice(2);
const [OPENINGS, RANGES] = [5, 15];

const tab = started(browser, folder, "1500,1300");
const open = [];
let page;
for (let number = 0; number < OPENINGS; number++) {
  page = await opened(tab, pathToFileURL(file));
  await until(page, "Boolean(window.kprof?.now.millis)");
  open.push(await page.value("kprof.millis"));
  if (number + 1 < OPENINGS) await closed(tab);
}
const range = await page.value(`(async () => {
  const millis = [];
  for (let number = 0; number < ${RANGES}; number++) {
    const from = Math.round((kprof.data.end * number) / ${RANGES} / 3);
    const began = performance.now();
    kprof.change({ from, to: kprof.data.end - 2 * from });
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    millis.push(performance.now() - began);
  }
  return millis;
})()`);
const zoom = await page.value(`(async () => {
  const millis = [];
  for (let number = 0; number < 2 * ${RANGES}; number++) {
    const began = performance.now();
    if (number < ${RANGES}) kprof.timeline.zoom(0.8);
    else kprof.timeline.zoom(1, 0.1);
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    millis.push(performance.now() - began);
  }
  return millis;
})()`);
const [samples, stacks, functions] =
  await page.value("[kprof.data.samples.time.length, kprof.data.stacks.node.length, kprof.data.names.length]");
console.log(JSON.stringify({ open, range, zoom, samples, stacks, functions }));
tab.end();
