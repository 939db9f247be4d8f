/** Audit log: who changed what, newest first. */

import { card, pageHead } from "../components/card.js";
import { errorBox } from "../components/feedback.js";
import { PagedTable } from "../components/paged.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";

const TYPING_MS = 200;
const FILTERS = ["who", "action", "subject"];
/** @type {Record<string, string>} */
const HINTS = { who: "who, exactly", action: "token-create", subject: "job, run or token" };

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Audit log",
  nav: "audit",
  async mount(context) {
    const { root, source, query, signal } = context;
    if (!source.may("admin")) {
      fill(root, pageHead("Audit log"), errorBox("Only administrators can read the audit log"));
      return;
    }
    /** @type {Record<string, string>} */
    const asked = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
    const count = el("span", { class: "muted", role: "status" });
    /** @type {PagedTable<Api.AuditEntry>} */
    const list = new PagedTable({
      load: (before) => source.get("/audit", { limit: 100, before, ...asked }, { signal }),
      onRows: (rows, hasMore) =>
        setText(
          count,
          `${hasMore ? "newest " : ""}${rows.length === 1 ? "1 entry" : `${format.count(rows.length)} entries`}`,
        ),
      table: {
        label: "Audit log",
        rowKey: (entry) => String(entry.number),
        empty: "No entry matches. Changes through the server are recorded here.",
        columns: [
          {
            id: "at",
            label: "When",
            width: 12.1,
            key: (entry) => String(entry.at_us),
            cell: (entry) => el("span", { title: format.ago(entry.at_us) }, format.time(entry.at_us)),
          },
          {
            id: "who",
            label: "Who",
            width: 14.3,
            key: (entry) => entry.who,
            cell: (entry) => el("span", { title: entry.who }, entry.who),
          },
          {
            id: "action",
            label: "Action",
            width: 10,
            key: (entry) => entry.action,
            cell: (entry) => el("code", null, entry.action),
          },
          {
            id: "subject",
            label: "Subject",
            width: 12.1,
            needs: "wide",
            key: (entry) => entry.subject,
            cell: (entry) => subject(entry, context),
          },
          {
            id: "details",
            label: "Details",
            needs: "wide",
            key: (entry) => JSON.stringify(entry.details ?? {}),
            cell: (entry) => el("span", { class: "muted", title: details(entry) }, details(entry)),
          },
        ],
      },
    });
    list.table.node.classList.add("audit-table");
    /** @type {number | undefined} */
    let typing;
    const fields = FILTERS.map((name) => {
      const input = el("input", { type: "text", value: asked[name], placeholder: HINTS[name] ?? "", size: "18" });
      input.addEventListener("input", () => {
        asked[name] = input.value.trim();
        context.setQuery({ [name]: asked[name] || null });
        clearTimeout(typing);
        typing = setTimeout(() => list.reload(), TYPING_MS);
      });
      return el("label", { class: "field" }, el("span", null, name), input);
    });
    fill(
      root,
      pageHead("Audit log", count),
      el("div", { class: "filters", role: "search", "aria-label": "Filter entries" }, fields),
      card("Entries", null, list.node),
    );
    await list.reload();
  },
};

/**
 * @param {Api.AuditEntry} entry
 * @param {import("../core/page.js").Context} context
 */
function subject(entry, context) {
  const short = entry.subject.slice(0, 13);
  const kind = entry.action.split("-")[0];
  if (kind === "job" && entry.action !== "job-delete") {
    return el("a", { href: context.href(`/jobs/${entry.subject}`), title: entry.subject }, short);
  }
  if (kind === "run") return el("a", { href: context.href(`/runs/${entry.subject}`), title: entry.subject }, short);
  return el("code", { title: entry.subject }, short);
}

/** @param {Api.AuditEntry} entry */
function details(entry) {
  return Object.entries(entry.details ?? {})
    .filter(([, value]) => value !== null && value !== "")
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(" · ");
}
