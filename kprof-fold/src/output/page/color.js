// Colors and texts of frames. In: traits of a frame, or its change in a comparison. Out: colors for the canvas, light
// and dark; short names and numbers for people.

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

/// The color of each frame. They are made once for each scheme, light or dark.
function frameColors(data) {
  data.colors ??= {};
  return (data.colors[isDark.matches] ??= data.names.map((name, frame) => {
    let hash = 0;
    for (let at = 0; at < name.length; at++) hash = (Math.imul(hash, 31) + name.charCodeAt(at)) | 0;
    return css(FRAME_COLORS[kindOfFrame(name, data.traits[frame])], ((hash >>> 8) % 100) / 100 * 9 - 4.5);
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

/// The last part of a function's path, without the types of a generic instance.
function lastSegment(name) {
  let [depth, cut] = [0, 0];
  for (let at = 0; at < name.length; at++) {
    if (name[at] === "<") depth++;
    else if (name[at] === ">" && name[at - 1] !== "-") depth--;
    else if (depth === 0 && name.startsWith("::", at) && name[at + 2] !== "<" && name[at + 2] !== "{") cut = at + 2;
  }
  return name.slice(cut);
}

/// The name in at most `letters` characters: whole, else its last segment, cut on the right. Empty if there is no room.
function label(name, letters) {
  if (name.length <= letters) return name;
  const last = lastSegment(name);
  if (last.length <= letters) return last;
  return letters < 3 ? "" : `${last.slice(0, letters - 1)}…`;
}

const whole = new Intl.NumberFormat("en");
const percent = (part, all) => `${((part * 100) / Math.max(all, 1)).toFixed(2)} %`;
const points = (share) => `${share > 0 ? "+" : ""}${(share * 100).toFixed(2)}`;
const seconds = (micros) => (micros / 1e6).toFixed(6);
/// The name of a frame with what distinguishes it from others of the same name.
const fullName = (data, frame) => data.names[frame] + (data.traits[frame] & TRAIT.inlined ? " (inlined)" : "");
