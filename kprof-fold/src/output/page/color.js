// Colors and texts of frames. In: traits of a frame, or its change in a comparison. Out: colors for the canvas, light
// and dark; short names and numbers for people.

const isDark = matchMedia("(prefers-color-scheme: dark)");
/// Hue, saturation and lightness of each kind of frame. Of each function the lightness differs a little.
const FRAME_COLORS = {
  kernel: [28, 80, 70], inlined: [46, 75, 74], syscall: [190, 55, 62], interrupt: [275, 50, 72],
  user: [110, 40, 66], marker: [0, 0, 74], lost: [0, 0, 55],
  unrecorded: [0, 0, 86],
};
/// The same for what CPUs do in the lanes.
const KIND_COLORS = [[28, 80, 62], [8, 75, 52], [275, 50, 62], [110, 40, 56], [215, 20, 84]];
const LOST_COLOR = [0, 0, 25];

function css([hue, saturation, light], shift = 0) {
  const shown = isDark.matches ? light * 0.62 : light;
  return `hsl(${hue} ${saturation}% ${(shown + shift).toFixed(1)}%)`;
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
  if (change === 0 || size < 0.005) return css([0, 0, 84]);
  const hue = change > 0 ? 5 : 215;
  return isSignificant ? css([hue, 75, 74 - 18 * size]) : css([hue, 25, 86]);
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
