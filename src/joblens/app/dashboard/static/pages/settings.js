/** Settings in force on the server, with their origin. They are changed in files, not here. */

import { card, pageHead } from "../components/card.js";
import { errorBox } from "../components/feedback.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Settings",
  nav: "settings",
  async mount(context) {
    const { root, source, query, signal } = context;
    /** @type {Api.ShownSettings} */
    const found = await source.get("/settings", {}, { signal });
    const search = el("input", {
      type: "search",
      class: "search",
      value: query.get("text") ?? "",
      placeholder: "Search settings",
      "aria-label": "Search settings",
    });
    const changed = el("input", { type: "checkbox", checked: query.get("changed") === "1" });
    const count = el("span", { class: "muted", role: "status" });
    const sections = el("div", { class: "stack" });
    const show = () => {
      const text = search.value.toLowerCase();
      const items = found.items.filter(
        (each) =>
          (!changed.checked || !each.is_default) &&
          `${each.name} ${each.meaning} ${each.value}`.toLowerCase().includes(text),
      );
      context.setQuery({ text: search.value || null, changed: changed.checked ? "1" : null });
      setText(count, format.counted(items.length, "setting"));
      fill(sections, grouped(items));
    };
    search.addEventListener("input", show);
    changed.addEventListener("change", show);
    fill(
      root,
      pageHead("Settings", count),
      el(
        "div",
        { class: "filters", role: "search", "aria-label": "Filter settings" },
        search,
        el("label", { class: "check-label" }, changed, "only those that are set"),
      ),
      found.problems.map((problem) => errorBox(problem)),
      el(
        "p",
        { class: "muted" },
        found.files.length ? `Read, later ones win: ${found.files.join(", ")}. ` : "No configuration file was found. ",
        "Change a file or a variable of the environment and restart the server. Secrets are not shown.",
      ),
      sections,
    );
    show();
  },
};

/** @param {readonly Api.ShownSetting[]} items */
function grouped(items) {
  /** @type {Map<string, Api.ShownSetting[]>} */
  const groups = new Map();
  for (const each of items) {
    const section = each.name.split(".")[0] ?? "";
    groups.set(section, [...(groups.get(section) ?? []), each]);
  }
  return [...groups].map(([name, found]) =>
    card(
      name,
      null,
      el(
        "dl",
        { class: "settings-list" },
        found.map((each) => row(each)),
      ),
    ),
  );
}

/** @param {Api.ShownSetting} setting */
function row(setting) {
  return el(
    "div",
    { class: `setting ${setting.is_default ? "" : "is-set"}` },
    el("dt", null, el("code", null, setting.name), el("span", { class: "muted small" }, setting.meaning)),
    el("dd", null, el("code", { class: "setting-value" }, setting.value ?? "(not set)")),
    el(
      "dd",
      { class: "muted small" },
      setting.is_default ? "default" : setting.origin,
      el("span", { class: "variable" }, setting.variable),
    ),
  );
}
