/** Messages to the reader: live region, toasts, errors in place, lines to copy, confirmation dialogs. */

import { el, fill, setText } from "../core/dom.js";
import { Problem } from "../core/source.js";

const TOAST_MS = 6000;

/** @type {HTMLElement | null} */
let region = null;
/** @type {HTMLElement | null} */
let polite = null;

/** Creates the regions once, at the end of the body. */
export function mountFeedback() {
  polite = el("div", { class: "visually-hidden", role: "status", "aria-live": "polite" });
  region = el("div", { class: "toasts" });
  document.body.append(polite, region);
}

/**
 * Says something to screen readers without showing it.
 * @param {string} text
 */
export function announce(text) {
  if (polite) setText(polite, text);
}

/**
 * Shows a message for some seconds, and says it.
 * @param {string} text
 * @param {"info" | "error"} [kind]
 */
export function toast(text, kind = "info") {
  const node = el(
    "div",
    { class: `toast toast-${kind}`, role: kind === "error" ? "alert" : "status" },
    el("span", null, text),
    el("button", { type: "button", class: "plain", "aria-label": "Dismiss", onclick: () => node.remove() }, "×"),
  );
  region?.append(node);
  if (kind === "info") setTimeout(() => node.remove(), TOAST_MS);
}

/**
 * The words for an error: what happened, and what to do.
 * @param {unknown} error
 */
export function wordsOf(error) {
  if (error instanceof Problem) return error.hint ? `${error.message}. ${error.hint}` : error.message;
  return error instanceof Error ? error.message : String(error);
}

/**
 * @param {unknown} error
 * @param {() => void} [retry]
 */
export function errorBox(error, retry) {
  const hint = error instanceof Problem ? error.hint : "";
  return el(
    "div",
    { class: "notice notice-bad", role: "alert" },
    el("strong", null, error instanceof Error ? error.message : String(error)),
    hint ? el("p", null, hint) : null,
    retry ? el("button", { type: "button", onclick: retry }, "Retry") : null,
  );
}

/**
 * Something that is not there, and why.
 * @param {string} text
 * @param {...import("../core/dom.js").Children} more
 */
export function emptyBox(text, ...more) {
  return el("div", { class: "notice empty" }, el("p", null, text), ...more);
}

/**
 * A command with a button that copies it.
 * @param {string} line
 * @param {string} [label]  What it does, for screen readers.
 */
export function copyLine(line, label = "command") {
  const button = el("button", { type: "button", class: "copy", "aria-label": `Copy ${label}` }, "Copy");
  button.addEventListener("click", async (event) => {
    event.stopPropagation();
    const isCopied = await copyText(line);
    fill(button, isCopied ? "Copied" : "Select it");
    announce(isCopied ? `${label} copied` : "copying is not allowed here");
    setTimeout(() => fill(button, "Copy"), 1500);
  });
  return el("span", { class: "copy-line" }, el("code", { tabindex: "0" }, line), button);
}

/** @param {string} text */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // From a file, or over plain HTTP, there is no clipboard: a selection can be copied instead.
    const area = el("textarea", { class: "visually-hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}

/**
 * Asks before a change. Resolves to the entered text ('' without a field), or to null.
 * @param {{ title: string, text: string, action: string, isDangerous?: boolean,
 *     field?: { label: string, value?: string, placeholder?: string } }} asked
 * @returns {Promise<string | null>}
 */
export function confirmDialog({ title, text, action, isDangerous = false, field }) {
  return new Promise((resolve) => {
    const input = field
      ? el("input", { type: "text", value: field.value ?? "", placeholder: field.placeholder ?? "", required: true })
      : null;
    const dialog = el(
      "dialog",
      { class: "dialog", "aria-label": title },
      el(
        "form",
        { method: "dialog" },
        el("h2", null, title),
        el("p", null, text),
        input ? el("label", null, field?.label ?? "", input) : null,
        el(
          "div",
          { class: "actions" },
          el("button", { type: "button", class: "plain", onclick: () => dialog.close("") }, "Keep as it is"),
          el("button", { value: "yes", class: isDangerous ? "danger" : "primary" }, action),
        ),
      ),
    );
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes" ? (input?.value.trim() ?? "") : null);
    });
    document.body.append(dialog);
    dialog.showModal();
    (input ?? dialog.querySelector("button"))?.focus();
  });
}
