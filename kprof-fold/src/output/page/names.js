// Names of functions for people. In: Rust names as symbols have them. Out: the same names in parts that can be read at
// a glance: the path, and the last segment. Types of generic instances are folded to `<..>`, the types of an
// implementation are shown without their paths, and a closure is named together with its parent. Whatever is pointed
// at or copied has its full name.

/// Where the bracket at `at` ends. The arrow of a function's type is no bracket.
function closing(name, at) {
  for (let depth = 0; at < name.length; at++) {
    if (name[at] === "<") depth++;
    else if (name[at] === ">" && name[at - 1] !== "-" && --depth === 0) return at;
  }
  return name.length - 1;
}

/// A name with folded types.
function foldedTypes(name) {
  let text = "";
  for (let at = 0; at < name.length; at++) {
    if (name[at] !== "<") {
      text += name[at];
      continue;
    }
    const end = closing(name, at);
    const inside = name.slice(at + 1, end);
    if (/[\w}]$|::$/.test(text)) text = `${text.replace(/::$/, "")}<..>`;
    else {
      const types = inside.split(/( as | for |^impl )/).map((one, place) => (place % 2 ? one : lastSegment(one)));
      text += `<${types.join("")}>`;
    }
    at = end;
  }
  return text;
}

/// The last part of a function's path, without the types of a generic instance; of a closure with its parent.
function lastSegment(name) {
  const text = foldedTypes(name);
  let cut = 0;
  for (let at = 0; at < text.length; at++) {
    if (text[at] === "<") at = closing(text, at);
    else if (text.startsWith("::", at) && text[at + 2] !== "{") cut = at + 2;
  }
  return text.slice(cut);
}

/// A name as its path and its last segment.
function partsOf(name) {
  if (name.startsWith("[")) return { path: "", last: name };
  const last = lastSegment(name);
  const text = foldedTypes(name);
  return { path: text.slice(0, text.length - last.length), last };
}

/// The parts in at most `letters` characters: all, else the last segment, cut on the right. Empty if there is no room.
function label({ path, last }, letters) {
  if (path.length + last.length <= letters) return { path, last };
  if (last.length <= letters) return { path: "", last };
  return { path: "", last: letters < 3 ? "" : `${last.slice(0, letters - 1)}…` };
}

/// The crate or the module of a function; "" if its name has no path, as in C and assembly.
function homeOf(name, isModule) {
  const path = name.replace(/^<(?:impl .* for )?[&*]*(?:mut |const |dyn )*/, "").replace(/[<>({ ].*$/, "").split("::");
  return isModule ? path.slice(0, -1).join("::") : path.length > 1 ? path[0] : "";
}

/// The name of a frame with what distinguishes it from others of the same name.
const fullName = (data, frame) => data.names[frame] + (data.traits[frame] & TRAIT.inlined ? " (inlined)" : "");
