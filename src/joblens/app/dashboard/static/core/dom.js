/** Safe element builder: data only ever becomes text or an attribute, never markup. */

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Child | Child[]} Children */
/** @typedef {Record<string, any>} Attributes */

const SVG = "http://www.w3.org/2000/svg";
const FORBIDDEN = new Set(["innerHTML", "outerHTML", "srcdoc", "insertAdjacentHTML"]);
// Control characters, and marks that reverse the text around them: a name could look like another.
const DECEPTIVE = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;
const READ_ALOUD = new Set(["title", "aria-label"]);
const PROPERTIES = new Set(["value", "checked", "disabled", "selected", "indeterminate", "hidden", "open"]);

/**
 * Creates an element. `on…` attributes are listeners, `style` is an object of CSS properties, `data` an object of
 * data attributes; null and false attributes are omitted.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes | null} [attributes]
 * @param {...Children} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  setAttributes(node, attributes ?? {});
  append(node, children);
  return node;
}

/**
 * Creates an SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag
 * @param {Attributes | null} [attributes]
 * @param {...Children} children
 * @returns {SVGElementTagNameMap[K]}
 */
export function svg(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  setAttributes(node, attributes ?? {});
  append(node, children);
  return /** @type {SVGElementTagNameMap[K]} */ (node);
}

/**
 * Replaces the content of an element.
 * @param {Element} node
 * @param {...Children} children
 */
export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
}

/**
 * Sets the text of an element if it differs, so that unchanged cells cost nothing.
 * @param {Element} node
 * @param {string} text
 */
export function setText(node, text) {
  const shown = plain(text);
  if (node.textContent !== shown) node.textContent = shown;
}

/**
 * The text as it may be shown: with a replacement for characters that are not what they seem.
 * @param {string} text
 */
export function plain(text) {
  return text.replace(DECEPTIVE, "\ufffd");
}

/**
 * Text for screen readers only.
 * @param {string} text
 */
export function hiddenText(text) {
  return el("span", { class: "visually-hidden" }, text);
}

/**
 * @param {Element} node
 * @param {Attributes} attributes
 */
function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "href" && value === "") continue; // a page that a report does not have: text, no link
    if (FORBIDDEN.has(name)) throw new Error(`attribute ${name} would turn data into markup`);
    if (name.startsWith("on")) {
      if (typeof value !== "function") throw new Error(`${name} needs a function`);
      node.addEventListener(name.slice(2), value);
    } else if (name === "style") {
      for (const [key, each] of Object.entries(value)) {
        /** @type {HTMLElement} */ (node).style.setProperty(key, String(each));
      }
    } else if (name === "data") {
      for (const [key, each] of Object.entries(value)) node.setAttribute(`data-${key}`, String(each));
    } else if (PROPERTIES.has(name) && name in node) {
      /** @type {any} */ (node)[name] = value;
    } else if (name === "href" || name === "src" || name === "action") {
      node.setAttribute(name, safeUrl(String(value)));
    } else {
      const text = value === true ? "" : String(value);
      node.setAttribute(name, READ_ALOUD.has(name) ? plain(text) : text);
    }
  }
}

/**
 * Refuses addresses that would run a script.
 * @param {string} url
 */
export function safeUrl(url) {
  const scheme = /^[\s\u0000-\u001f]*([a-z][a-z0-9+.-]*):/i.exec(url);
  const isAllowed = !scheme || ["http", "https", "mailto", "blob"].includes((scheme[1] ?? "").toLowerCase());
  return isAllowed ? url : "#";
}

/**
 * @param {Node} node
 * @param {Children[]} children
 */
function append(node, children) {
  for (const child of children) {
    if (Array.isArray(child)) append(node, child);
    else if (child instanceof Node) node.appendChild(child);
    else if (child !== null && child !== undefined && child !== false) {
      node.appendChild(document.createTextNode(plain(String(child))));
    }
  }
}
