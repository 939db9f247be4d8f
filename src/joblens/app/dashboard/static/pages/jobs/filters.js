/** Filters of the list of jobs: search field, states, time, and fields that are added when they are needed. */

import { stateBadge } from "../../components/state.js";
import { el } from "../../core/dom.js";

const STATES = ["running", "queued", "success", "failed", "timeout", "error", "cancelled", "lost", "measured"];
const FAILED = ["failed", "timeout", "error", "lost"];
const OVER_LIMIT = ["out-of-memory", "child-out-of-memory", "timed-out", "pids-limit", "cpu-throttled"];
const TIMES = [
  ["", "any time"],
  ["1h", "last hour"],
  ["1d", "last day"],
  ["7d", "last 7 days"],
  ["30d", "last 30 days"],
];
const FIELDS = ["name", "tool", "tag", "user", "host", "run", "finding"];

export class Filters {
  /**
   * @param {URLSearchParams} query
   * @param {AbortSignal} signal
   * @param {(changes: Record<string, string | string[] | null>, isTyped: boolean) => void} onChange
   */
  constructor(query, signal, onChange) {
    this._onChange = onChange;
    const search = el("input", {
      type: "search",
      value: query.get("name_contains") ?? "",
      placeholder: "Search names",
      "aria-label": "Search names",
      class: "search",
    });
    search.addEventListener("input", () => onChange({ name_contains: search.value || null }, true));
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.key !== "/" || target.matches("input, textarea, select")) return;
      event.preventDefault();
      search.focus();
    };
    document.addEventListener("keydown", onKey, { signal });
    const since = el(
      "select",
      { "aria-label": "Started" },
      TIMES.map(([value, label]) => el("option", { value, selected: (query.get("since") ?? "") === value }, label)),
    );
    const known = TIMES.some(([value]) => value === (query.get("since") ?? ""));
    if (!known)
      since.append(el("option", { value: query.get("since") ?? "", selected: true }, `since ${query.get("since")}`));
    since.addEventListener("change", () => onChange({ since: since.value || null }, false));
    this.node = el(
      "form",
      { class: "filters", role: "search", "aria-label": "Filter jobs", onsubmit: stay },
      search,
      el("div", { class: "states", role: "group", "aria-label": "States" }, this._states(query)),
      since,
      this._toggle("Over limit", "over_limit", query),
      this._fields(query),
    );
  }

  /**
   * Parameters of the API for an address.
   * @param {URLSearchParams} query
   */
  parameters(query) {
    /** @type {Record<string, any>} */
    const found = {};
    for (const name of ["name_contains", "since", "until", "user", "run", "id"]) found[name] = query.get(name);
    for (const name of ["status", "name", "tool", "tag", "host"]) found[name] = query.getAll(name);
    const codes = query.getAll("finding");
    found.finding = query.get("over_limit") && !codes.length ? OVER_LIMIT : codes;
    return found;
  }

  /** @param {URLSearchParams} query */
  _states(query) {
    const chosen = new Set(query.getAll("status"));
    return STATES.map((status) => {
      const button = el(
        "button",
        { type: "button", class: "state-filter", "aria-pressed": String(chosen.has(status)) },
        stateBadge(status),
      );
      button.addEventListener("click", (event) => {
        // With Alt, all failures together.
        const group = event.altKey && FAILED.includes(status) ? FAILED : [status];
        for (const each of group) if (!chosen.delete(each)) chosen.add(each);
        for (const other of button.parentElement?.children ?? []) {
          const index = [...(button.parentElement?.children ?? [])].indexOf(other);
          other.setAttribute("aria-pressed", String(chosen.has(STATES[index] ?? "")));
        }
        this._onChange({ status: [...chosen] }, false);
      });
      return button;
    });
  }

  /**
   * @param {string} label
   * @param {string} name
   * @param {URLSearchParams} query
   */
  _toggle(label, name, query) {
    const box = el("input", { type: "checkbox", checked: query.get(name) === "1" });
    box.addEventListener("change", () => this._onChange({ [name]: box.checked ? "1" : null }, false));
    return el("label", { class: "check-label" }, box, label);
  }

  /** @param {URLSearchParams} query */
  _fields(query) {
    const shown = el("div", { class: "more-filters" });
    const add = (/** @type {string} */ name, /** @type {string} */ value) => {
      const input = el("input", { type: "text", value, placeholder: FIELD_HINTS[name] ?? name, size: "14" });
      const remove = el("button", { type: "button", class: "plain", "aria-label": `Remove the filter ${name}` }, "×");
      const field = el("label", { class: "field" }, el("span", null, name), input, remove);
      input.addEventListener("input", () => this._onChange({ [name]: valuesOf(shown, name) }, true));
      remove.addEventListener("click", () => {
        field.remove();
        this._onChange({ [name]: valuesOf(shown, name) }, false);
      });
      field.dataset.name = name;
      shown.append(field);
      return input;
    };
    for (const name of [...FIELDS, "id", "until"]) for (const value of query.getAll(name)) add(name, value);
    const menu = el(
      "select",
      { "aria-label": "Add a filter" },
      el("option", { value: "" }, "+ filter"),
      [...FIELDS, "id", "until"].map((name) => el("option", { value: name }, name)),
    );
    menu.addEventListener("change", () => {
      if (menu.value) add(menu.value, "").focus();
      menu.value = "";
    });
    return [menu, shown];
  }
}

/** @type {Record<string, string>} */
const FIELD_HINTS = {
  name: "train*",
  tag: "key=value",
  run: "3.2",
  until: "2h or 2026-01-31",
  finding: "out-of-memory",
};

/**
 * @param {HTMLElement} shown
 * @param {string} name
 */
function valuesOf(shown, name) {
  const fields = /** @type {HTMLElement[]} */ ([...shown.children]).filter((field) => field.dataset.name === name);
  return fields.map((field) => field.querySelector("input")?.value.trim() ?? "").filter(Boolean);
}

/** @param {Event} event */
function stay(event) {
  event.preventDefault();
}
