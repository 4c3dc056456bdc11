// Pointer, keys and wheel in a page of `kprof-fold html`, and what is found there. In: a page of `browser.mjs`. Out:
// input events as a person makes them; places on the screen, texts, times.

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { opened, until } from "./browser.mjs";

/// Opens the page of this name in a folder and waits until it has drawn itself.
export async function drawn(tab, folder, name, fragment = "") {
  const page = await opened(tab, pathToFileURL(join(folder, name)) + fragment);
  await until(page, "Boolean(window.kprof?.now.millis)");
  return page;
}
/// Chooses a value of a list.
export const pick = (page, id, value) => page.value(`(() => {
  const list = document.getElementById("${id}");
  list.value = "${value}";
  list.dispatchEvent(new Event("change"));
})()`);
/// Where the middle of an element is on the screen.
export async function middle(page, selector) {
  return page.value(`(() => {
    const element = document.querySelector(${JSON.stringify(selector)});
    element.scrollIntoView({ block: "center" });
    const { left, top, width, height } = element.getBoundingClientRect();
    return [left + width / 2, top + height / 2];
  })()`);
}
export async function mouse(page, type, [x, y], more = {}) {
  await page.send("Input.dispatchMouseEvent", { type, x, y, button: "left", clickCount: 1, ...more });
}
export async function click(page, place) {
  const at = typeof place === "string" ? await middle(page, place) : place;
  await mouse(page, "mouseMoved", at);
  await mouse(page, "mousePressed", at);
  await mouse(page, "mouseReleased", at);
}
export async function press(page, key, text) {
  await page.send("Input.dispatchKeyEvent", { type: "keyDown", key, code: key, text });
  await page.send("Input.dispatchKeyEvent", { type: "keyUp", key, code: key });
}
/// The box of the flame graph whose text fits: `{ node, name, at, total }`, where `at` is its place on the screen.
export const box = (page, test) => page.value(`(() => {
  document.getElementById("flame").scrollIntoView({ block: "center" });
  const { flame } = kprof, area = document.getElementById("flame").getBoundingClientRect();
  const found = flame.boxes.filter((box) => box.node && (${test})(flame.style.text(box), box))
    .sort((a, b) => b.width - a.width)[0];
  flame.scroll.scrollTop = found.y - 100;
  return { node: found.node, name: flame.style.text(found), total: found.part.weights?.total[found.node],
    at: [area.left + found.x + found.width / 2, area.top + found.y - flame.scroll.scrollTop + 9] };
})()`);
export const text = (page, id) => page.value(`document.getElementById("${id}").textContent`);

export const wait = (millis) => new Promise((done) => setTimeout(done, millis));
/// Turns the wheel over a place.
export const wheel = (page, [x, y], deltaY, more = {}) =>
  page.send("Input.dispatchMouseEvent", { type: "mouseWheel", x, y, deltaX: 0, deltaY, ...more });
/// The time at a place of the lanes.
export const microsAt = (page, [x, y]) => page.value(`kprof.timeline.micros({ clientX: ${x}, clientY: ${y} })`);
export const sight = (page) => page.value("[...kprof.timeline.sight]");
export const width = ([from, to]) => to - from;
