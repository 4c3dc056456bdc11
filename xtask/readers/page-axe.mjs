// The page is accessible: axe, which checks pages by the rules of WCAG, finds nothing wrong in any view, in both
// themes.
//
// In: the folder with the pages (`xtask/src/test/page.rs` makes them), a browser's path, axe's file. Out: a line per
// check: `ok NAME`, `FAILED NAME: WHY`.

import { readFileSync } from "node:fs";
import { check, same, started } from "./browser.mjs";
import { drawn } from "./pointer.mjs";

const [folder, browser, axe] = process.argv.slice(2);
const source = readFileSync(axe, "utf8");
const tab = started(browser, folder, "1280,800");
const VIEWS = ["flame", "icicle", "inverted", "sandwich", "chart"];

/// What axe finds: the rule and the first element, for each violation.
const FOUND = `axe.run().then((all) => all.violations.map((one) => one.id + ": " + one.nodes[0].html.slice(0, 100)))`;

/// Checks the page as it is now, in both themes.
async function examined(page, name) {
  for (const value of ["light", "dark"]) {
    await page.send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value }] });
    await page.value("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
    same(`${name}, ${value}`, await page.value(FOUND), []);
  }
}

await check(tab, "axe finds nothing in any view of the page, in both themes", async () => {
  const page = await drawn(tab, folder, "page.html");
  await page.value(`${source};0`);
  // It would find this.
  await page.value(`document.body.append(Object.assign(document.createElement("img"), { id: "unnamed", src: "" }))`);
  same("an image without a name", (await page.value(FOUND)).some((found) => found.startsWith("image-alt")), true);
  await page.value(`document.getElementById("unnamed").remove()`);
  await examined(page, "at first");
  await page.value("kprof.change({ func: 5 })");
  for (const view of VIEWS) {
    await page.value(`kprof.change({ view: "${view}" })`);
    await examined(page, view);
  }
});

for (const name of ["compared", "event-exact", "event-heap", "compared-exact", "boots", "lanes"]) {
  await check(tab, `axe finds nothing in ${name}`, async () => {
    const page = await drawn(tab, folder, `${name}.html`);
    await page.value(`${source};0`);
    await examined(page, name);
  });
}

tab.end();
