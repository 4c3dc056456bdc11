// Colors and texts of frames. In: traits of a frame, or its change in a comparison. Out: colors for the canvas, light
// and dark; numbers for people.

const isDark = matchMedia("(prefers-color-scheme: dark)");
/// Hue, saturation and lightness of each kind of frame, in light and in dark. The text of a box can be read on each of
/// them: its contrast is at least 4.5 to 1. Of each function the lightness differs a little.
const FRAME_COLORS = {
  kernel: [[28, 80, 70], [28, 58, 28]], inlined: [[46, 75, 74], [46, 40, 27]],
  syscall: [[190, 55, 62], [190, 55, 25]], interrupt: [[275, 50, 76], [275, 38, 37]],
  user: [[110, 40, 66], [110, 30, 26]], marker: [[0, 0, 74], [0, 0, 32]], lost: [[0, 0, 60], [0, 0, 38]],
  unrecorded: [[0, 0, 86], [0, 0, 24]],
};
/// The same for what CPUs do in the lanes, then for what is lost. People who see fewer colors can tell them apart.
const KIND_COLORS = [
  [[28, 85, 66], [28, 75, 58]], [[350, 75, 38], [352, 80, 42]], [[270, 55, 62], [268, 60, 66]],
  [[150, 45, 44], [158, 60, 33]], [[215, 25, 86], [215, 12, 28]], [[0, 0, 12], [0, 0, 95]],
];
/// The root of a flame graph, and what has not changed.
const NEUTRAL = [[0, 0, 84], [0, 0, 28]];
/// What is selected or under the pointer.
const OUTLINE = [[275, 90, 45], [275, 90, 80]];

function css(color, shift = 0) {
  const [hue, saturation, light] = color[isDark.matches ? 1 : 0];
  return `hsl(${hue} ${saturation}% ${(light + shift).toFixed(1)}%)`;
}

/// The ink for text on a color of the lanes: the darker or lighter one, whichever can be read.
function inkOn(color) {
  const bytes = new Uint8Array(new Uint32Array([pixelOf(css(color))]).buffer);
  const light = [...bytes.slice(0, 3)].map((byte) => (byte / 255) ** 2.2);
  return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2] > 0.18 ? "#000" : "#fff";
}

function kindOfFrame(name, traits) {
  if (traits & TRAIT.lost) return "lost";
  if (traits & TRAIT.unrecorded) return "unrecorded";
  if (traits & TRAIT.syscall) return "syscall";
  if (traits & TRAIT.interrupt) return "interrupt";
  if (name.startsWith("[")) return name.startsWith("[u") || name.startsWith("[t") || name.startsWith("[r")
    ? "marker" : "kernel";
  if (traits & TRAIT.user) return "user";
  return traits & TRAIT.inlined ? "inlined" : "kernel";
}

/// A number that depends on all letters of a text.
function hashOf(text) {
  let hash = 0;
  for (let at = 0; at < text.length; at++) hash = (Math.imul(hash, 31) + text.charCodeAt(at)) | 0;
  return (hash ^ (hash >>> 15)) >>> 0;
}

/// The color of a crate or module. What is in none is gray.
const homeColor = (home) => {
  const hue = Math.imul(hashOf(home), 0x9e3779b1) >>> 0;
  return css(home ? [[hue % 360, 55, 76], [hue % 360, 42, 25]] : NEUTRAL);
};

/// The color of each frame by kind, crate or module. They are made once for each scheme, light or dark.
function frameColors(data, by) {
  data.colors ??= {};
  return (data.colors[`${isDark.matches} ${by}`] ??= data.names.map((name, frame) => {
    const kind = kindOfFrame(name, data.traits[frame]);
    if (by !== "kind" && !name.startsWith("[")) return homeColor(homeOf(name, by === "module"));
    return css(FRAME_COLORS[kind], ((hashOf(name) >>> 8) % 100) / 100 * 9 - 4.5);
  }));
}

/// The color for a change of share: red if it grew, blue if it shrank, pale if it may be chance.
function changeColor(change, isSignificant) {
  const size = Math.min(1, Math.abs(change) * 20);
  if (change === 0 || size < 0.005) return css(NEUTRAL);
  const hue = change > 0 ? 5 : 215;
  return isSignificant ? css([[hue, 75, 76 - 12 * size], [hue, 30 + 40 * size, 28 + 6 * size]])
    : css([[hue, 25, 86], [hue, 14, 26]]);
}

const whole = new Intl.NumberFormat("en");
const percent = (part, all) => `${((part * 100) / Math.max(all, 1)).toFixed(2)} %`;
const points = (share) => `${share > 0 ? "+" : ""}${(share * 100).toFixed(2)}`;
const seconds = (micros) => (micros / 1e6).toFixed(6);
/// The same with as many digits as a range of this width needs.
const secondsIn = (micros, width) =>
  (micros / 1e6).toFixed(Math.min(6, Math.max(0, 9 - Math.floor(Math.log10(Math.max(1, width))))));
