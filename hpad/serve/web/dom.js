// Builds and updates the document. Every text reaches it through `harmless`, as text, never as markup.

const CONTROLS =
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;
const SHORT_ESCAPES = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

// Returns the text on one line, with control characters escaped as in JSON (hpad/api/text.py: harmless).
function harmless(text) {
  return String(text).replace(
    CONTROLS,
    (found) => SHORT_ESCAPES[found] ?? `\\u${found.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set("svg g path line rect circle text use defs pattern clipPath polygon title".split(" "));

// h("a.link.quiet", {href: "#/"}, "text", child, [children]): an element. Attributes that are null, undefined or false
// are left out. `style` is an object of CSS properties, set through the CSSOM, which the policy of the page allows.
function h(tag, attributes = {}, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = SVG_TAGS.has(name) ? document.createElementNS(SVG, name) : document.createElement(name);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "style") for (const [property, to] of Object.entries(value)) element.style.setProperty(property, to);
    else if (key === "class") element.setAttribute("class", [...classes, value].join(" "));
    else element.setAttribute(key, value === true ? "" : harmless(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(element, child);
    else element.append(child instanceof Node ? child : harmless(child));
  }
}

function icon(name, label = null) {
  const use = h("use", { href: `#i-${name}` });
  return label === null
    ? h("svg.icon", { "aria-hidden": "true", "data-icon": name }, use)
    : h("svg.icon", { role: "img", "aria-label": label, "data-icon": name }, h("title", {}, label), use);
}

const LONGEST = 320; // characters of a text that is shown at once
const BEGINNING = 240; // characters that are shown of a longer one

// A text from outside: of a long one the beginning, or that of a shorter form, and all of it on demand.
function folded(text, brief = text) {
  if (text.length <= LONGEST) return text;
  const beginning = brief.slice(0, BEGINNING).replace(/[\ud800-\udbff]$/, "");
  return h("details.fold", {}, h("summary", {}, h("span.beginning", {}, beginning, "… "), h("span.link", {})), text);
}

// Makes the children of `element` equal to `children`. Elements that exist already stay, with their focus, scroll
// position and open details, so that an update does not disturb the reader.
function show(element, ...children) {
  const fresh = document.createDocumentFragment();
  append(fresh, children);
  morphChildren(element, fresh);
}

function morphChildren(old, fresh) {
  const wanted = [...fresh.childNodes];
  wanted.forEach((node, index) => {
    const present = old.childNodes[index];
    if (present === undefined) old.append(node);
    else if (alike(present, node)) morph(present, node);
    else {
      const later = node.dataset?.key && [...old.childNodes].slice(index).find((each) => alike(each, node));
      if (later) {
        old.insertBefore(later, present);
        morph(later, node);
      } else present.replaceWith(node);
    }
  });
  while (old.childNodes.length > wanted.length) old.lastChild.remove();
}

function alike(one, other) {
  return one.nodeName === other.nodeName && one.dataset?.key === other.dataset?.key && one.id === other.id;
}

function morph(old, fresh) {
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (name !== "style" && name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  if (old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;
  if (!old.hasAttribute("data-own")) morphChildren(old, fresh);
}

const $ = (id) => document.getElementById(id);

// Speaks a text through a screen reader.
function announce(text) {
  $("spoken").textContent = harmless(text);
}
